# The files as one text, a few paragraphs of each in turn, so that any beginning of it is a mixture of all.
# LC_ALL=C awk -f mix.awk FILE...
BEGIN { RS = ""; CHUNK = 1500 }
FNR == 1 { n++ }
{ par[n, ++count[n]] = $0 }
END {
    do {
        more = 0
        for (i = 1; i <= n; i++)
            for (size = 0; size < CHUNK && at[i] < count[i]; more = 1) {
                size += length(par[i, ++at[i]])
                if (printed++)
                    print ""
                print par[i, at[i]]
            }
    } while (more)
}
