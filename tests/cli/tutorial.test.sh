#!/bin/sh
# docs/TUTORIAL.md does what it says: its commands run in order and print what it prints, its workflow passes, and
# stops when a limit does not hold.
set -eu
llmq=$1
python3 - "$llmq" "$PWD" <<'PY'
import difflib, os, re, shutil, subprocess, sys, tempfile

llmq, source = os.path.abspath(sys.argv[1]), sys.argv[2]
text = open("docs/TUTORIAL.md", encoding="utf8").read()
blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
work = tempfile.mkdtemp()
env = dict(os.environ, PATH=os.path.dirname(llmq) + ":" + os.environ["PATH"], LLMQ_SOURCE=source)


def fail(*lines):
    print("tutorial:", *lines, sep="\n")
    sys.exit(1)


def bash(script, env=env, flags="-euo"):
    """Runs a script as CI does; its status and what it printed on standard output."""
    run = subprocess.run(["bash", *flags.split(), "pipefail", "-c", script], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, encoding="utf8")
    return run.returncode, run.stdout, run.stderr


def steps(yaml):
    """Name and script of each `run:` step, and the job's variables; no more of YAML than this file uses."""
    variables = dict(re.findall(r'^ {6}([A-Z_0-9]+): "(.*)"$', yaml, re.M))
    found = re.findall(r"^ {6}- name: (.*)\n {8}run: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", yaml, re.M)
    return [(name, many or one) for name, many, one in found], variables


def workflow(yaml, **limits):
    """The step that stopped the job and its status, or (None, 0)."""
    todo, variables = steps(yaml)
    names = [name for name, _ in todo]
    if names != ["Install llmq", "Record the version", "Quantize", "Reproduce", "Gate", "Smoke test", "Publish"]:
        fail("the workflow's steps are " + ", ".join(names))
    for name, script in todo[1:]:                   # the binary under test is what stands in for the first one
        status, _, err = bash(script, {**env, **variables, **limits})
        if status:
            return name, status, err
    return None, 0, ""


def without_speed(out):
    """The lines that do not depend on the machine: a slow one also prints its progress."""
    return [line for line in out.splitlines() if not re.match(r"speed |\w+ +\d+ %  ", line)]


checked = 0
for i, (kind, body) in enumerate(blocks):
    if kind == "sh":
        status, out, err = bash(body)
        if status:
            fail(f"status {status} of", body, err)
        if i + 1 < len(blocks) and blocks[i + 1][0] == "text":
            got, want = without_speed(out), blocks[i + 1][1].splitlines()
            checked += 1
            if got != want:
                fail(*difflib.unified_diff(want, got, "docs/TUTORIAL.md", "printed", lineterm=""))
    elif kind == "yaml":
        for name in ("model.llmq", "original.llmq"):
            os.remove(os.path.join(work, name))
        stopped, status, err = workflow(body)
        if stopped:
            fail(f"the workflow stopped at {stopped} with {status}", err)
        sums = bash("cd release && sha256sum -c --quiet SHA256SUMS")
        if sums[0]:
            fail("the published file is not what SHA256SUMS says")
        shutil.rmtree(os.path.join(work, "release"))
        stopped, status, err = workflow(body, MAX_KLD="0.001")
        if (stopped, status) != ("Gate", 3) or os.path.exists(os.path.join(work, "release")):
            fail(f"a limit that does not hold: stopped at {stopped} with {status}", err)
        bash("mv model.llmq kept.llmq; truncate -s -1 checkpoint/model.safetensors")
        stopped, status, err = workflow(body)
        if (stopped, status) != ("Quantize", 4) or os.path.exists(os.path.join(work, "model.llmq")):
            fail(f"a damaged checkpoint: stopped at {stopped} with {status}", err)
        bash(f"cp {source}/calib_data/demo/model.safetensors checkpoint/; mv kept.llmq model.llmq")
if checked < 6 or not any(kind == "yaml" for kind, _ in blocks):
    fail(f"only {checked} outputs compared")
shutil.rmtree(work)
PY
echo "tutorial: its commands print what it says, its workflow passes, and stops for a lost limit and a damaged checkpoint"
