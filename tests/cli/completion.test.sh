#!/bin/sh
# llmq completion and llmq --version.  The scripts are loaded by the shells themselves: bash and fish list exactly the
# options of the tables, and a tab, typed on a terminal in bash and zsh, makes the word that it should.  A shell that is
# not installed is skipped, in words.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "completion: $*"; exit 1; }
done_for='' skipped=''

for s in bash zsh fish; do
    "$llmq" completion $s > "$tmp/llmq.$s"
done
for c in $("$llmq" --list-commands); do
    { "$llmq" "$c" --help-options | cut -f1; echo help; echo version; } | sed 's/^/--/' | LC_ALL=C sort > "$tmp/$c.want"
done

# ---- bash and fish: everything there is, and nothing else -------------------------------------------------------------
cat > "$tmp/ask.bash" << 'EOF'
source "$1" || exit 1
complete -p llmq > /dev/null || exit 1
COMP_WORDS=(llmq "$2" --) COMP_CWORD=2
_llmq
printf '%s\n' "${COMPREPLY[@]}"
EOF
same() { # COMMAND SHELL
    LC_ALL=C sort "$tmp/got" | cmp -s - "$tmp/$1.want" || fail "$2, $1: found $(sort "$tmp/got" | diff "$tmp/$1.want" - || true)"
}
if command -v bash > /dev/null; then
    for c in $("$llmq" --list-commands); do
        bash --norc "$tmp/ask.bash" "$tmp/llmq.bash" "$c" > "$tmp/got" || fail "bash does not load its script"
        same "$c" bash
    done
fi
if command -v fish > /dev/null; then
    mkdir "$tmp/home"
    ask() { HOME=$tmp/home fish --no-config -c "source '$tmp/llmq.fish'; complete -C '$1'" | cut -f1; }
    for c in $("$llmq" --list-commands); do
        ask "llmq $c --" > "$tmp/got"
        same "$c" fish
    done
    [ "$(ask 'llmq qua')" = quantize ] || fail "fish: qua: $(ask 'llmq qua')"
    [ "$(ask 'llmq quantize --group-size chan')" = channel ] || fail "fish: chan"
    [ "$(ask 'llmq quantize --isa=avx5')" = --isa=avx512 ] || fail "fish: --isa=avx5: $(ask 'llmq quantize --isa=avx5')"
    [ "$(ask 'llmq help inspe')" = inspect ] || fail "fish: help inspe"
    [ "$(ask 'llmq completion zs')" = zsh ] || fail "fish: completion zs"
    (cd "$tmp" && [ "$(ask 'llmq verify ask.ba')" = ask.bash ]) || fail "fish: a file"
    (cd "$tmp" && ask 'llmq quantize --calib ' > "$tmp/got" && grep -qx self "$tmp/got" && grep -qx ask.bash "$tmp/got") || fail "fish: --calib"
    done_for="$done_for fish"
else
    skipped="$skipped fish"
fi

# ---- bash and zsh: on a terminal ----------------------------------------------------------------------------------------
mkdir "$tmp/bin" "$tmp/there"
printf '#!/bin/sh\nprintf "GOT"; printf "<%%s>" "$@"; echo\n' > "$tmp/bin/llmq"
chmod +x "$tmp/bin/llmq"
: > "$tmp/there/some model.llmq"
: > "$tmp/there/otherfile"
cat > "$tmp/type.py" << 'EOF'
import os, pty, select, sys, time

shell, script, folder, path = sys.argv[1:]
start = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
prepare = {"bash": "", "zsh": "autoload -Uz compinit && compinit -u -D; "}[shell]
lines = [  # what is typed, what llmq is started with
    ("qua\t", "<quantize>"),
    ("quantize --gro\t64", "<quantize><--group-size><64>"),
    ("quantize --group-size chan\t", "<quantize><--group-size><channel>"),
    ("quantize --isa=avx5\t", "<quantize><--isa=avx512>"),
    ("quantize --calib sel\t", "<quantize><--calib><self>"),
    ("quantize --calib otherf\t", "<quantize><--calib><otherfile>"),
    ("quantize -o otherf\t", "<quantize><-o><otherfile>"),
    ("verify so\t", "<verify><some model.llmq>"),
    ("eval --max-ppl-i\t1%", "<eval><--max-ppl-increase><1%>"),
    ("completion fi\t", "<completion><fish>"),
    ("help toke\t", "<help><tokenize>"),
]
pid, fd = pty.fork()
if pid == 0:
    os.chdir(folder)
    os.execvpe(start[0], start, {"PATH": path, "TERM": "dumb", "PS1": "$ ", "HOME": folder, "LC_ALL": "C.UTF-8"})
seen = ""


def until(text):
    global seen
    end = time.time() + 30
    while text not in seen:
        if time.time() > end or not select.select([fd], [], [], 30)[0]:
            sys.exit(f"{shell}: no {text!r} in {seen!r}")
        seen += os.read(fd, 4096).decode(errors="replace")
    seen = seen[seen.index(text) + len(text):]


def type_in(text):
    os.write(fd, text.encode())


type_in(f"{prepare}source {script}; echo READ''Y\n")
until("READY")
for typed, want in lines:
    type_in("llmq " + typed)
    time.sleep(0.1)
    type_in("\n")
    if shell == "zsh" and typed[-1] != "\t":  # it goes on behind the option with =
        want = want.replace("><64>", "=64>").replace("><1%>", "=1%>")
    until("GOT" + want)
type_in("exit\n")
os.waitpid(pid, 0)
EOF
for s in bash zsh; do
    if command -v $s > /dev/null; then
        python3 "$tmp/type.py" $s "$tmp/llmq.$s" "$tmp/there" "$tmp/bin:$PATH" || fail "$s on a terminal"
        done_for="$done_for $s"
    else
        skipped="$skipped $s"
    fi
done

# ---- --version -----------------------------------------------------------------------------------------------------------
"$llmq" --version > "$tmp/version"
"$llmq" --version --json > "$tmp/version.json"
"$llmq" verify --json --version | grep -v peak_rss > "$tmp/version2.json"
grep -v peak_rss "$tmp/version.json" | cmp - "$tmp/version2.json" || fail "verify --json --version"
python3 - "$tmp" << 'EOF' || fail "--version"
import json, os, subprocess, sys
tmp = sys.argv[1]
text, doc = open(f"{tmp}/version").read(), json.load(open(f"{tmp}/version.json"))
assert doc["schema"] == "llmq.version/1" and doc["model"] is None and doc["exit_code"] == 0, doc
assert text.startswith(f"llmq {doc['version']} ({doc['commit']})\n"), text
for name in ("zlib", "jansson", "nettle", "pcre2", "utf8proc"):
    assert f"{name} {doc['features'][name]}" in text and doc["features"][name][0].isdigit(), (name, text)
assert doc["features"]["openmp"] >= 201511 and doc["features"]["cuda"] is False
assert doc["cpu"]["compiled"] == ["scalar", "avx2", "avx512"] and doc["cpu"]["found"] in doc["cpu"]["compiled"]
flags = set(open("/proc/cpuinfo").read().split())
best = "avx512" if "avx512_vnni" in flags and "avx512bw" in flags else "avx2" if {"avx2", "fma", "f16c"} <= flags else "scalar"
assert doc["cpu"]["found"] == best, (doc["cpu"], best)
commit = doc["commit"].replace("-dirty", "").split("-g")[-1]
if os.path.exists(".git") and not os.path.exists("dist-commit"):
    known = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).returncode == 0
    assert subprocess.run(["git", "cat-file", "-e", commit]).returncode == 0 if known else commit == "unknown", commit
else:
    assert commit, doc
EOF
echo "completion:$done_for do as the tables say${skipped:+; SKIPPED, not installed:$skipped}; --version"
