#!/bin/sh
# Who may include whom.  A directory may include its own headers and those named for it here, nothing
# else; a subdirectory is a layer of its own.
set -eu
allow() {
    case $1 in
    common)        echo "" ;;
    format)        echo "common/*" ;;
    convert)       echo "common/* format/format.h" ;;
    runner)        echo "common/* format/format.h runner/model/* runner/engine/* runner/text/*" ;;
    runner/model)  echo "common/* format/format.h" ;;
    runner/text)   echo "common/* format/format.h runner/runner.h calib_builtin.inc" ;;
    runner/engine) echo "common/* format/format.h runner/runner.h runner/model/* runner/text/*" ;;
    runner/cpu)    echo "common/* format/format.h runner/model/ops.h" ;;
    quantize)      echo "common/* format/format.h runner/model/model.h runner/model/ops.h runner/model/batch.h runner/text/corpus.h runner/text/tokenizer.h" ;;
    cli)           echo "common/* format/format.h convert/convert.h convert/foreign.h quantize/quantize.h quantize/modelplan.h runner/runner.h runner/eval.h runner/selfsample.h runner/cpu/isa.h runner/text/corpus.h runner/text/tokenizer.h version.h" ;;
    esac
}
bad=0
for dir in common format convert runner runner/model runner/text runner/engine runner/cpu quantize cli; do
    [ -d "$dir" ] || continue
    ok=$(allow "$dir")
    for hit in $(find "$dir" -maxdepth 1 -name '*.[ch]' -print0 | xargs -0 -r grep -Hno '#include "[^"]*"' | sed 's/#include //; s/"//g'); do
        at=${hit%:*} inc=${hit##*:}
        [ "${inc%/*}" = "$dir" ] && continue
        fine=0
        for p in $ok; do
            # shellcheck disable=SC2254
            case $inc in $p) fine=1 ;; esac
        done
        [ $fine -eq 1 ] || { echo "$at: $dir/ may not include \"$inc\""; bad=1; }
    done
done
[ $bad -eq 0 ] && echo "layers: ok"
exit $bad
