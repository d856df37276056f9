#!/bin/sh
# A conversation on a terminal: history, commands, Ctrl-C, messages of several lines, what cannot be.
set -eu
llmq=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$llmq" convert calib_data/demo -o "$tmp/demo.llmq" -q --progress none
python3 - "$llmq" "$tmp" <<'PY'
import fcntl, json, os, pty, re, select, signal, subprocess, sys, termios, time

llmq, tmp = sys.argv[1:]
demo = tmp + "/demo.llmq"


class Talk:
    """llmq run with a terminal as standard input and error, and a pipe or file as standard output."""

    def __init__(self, *args):
        self.master, slave = pty.openpty()
        self.out = open(tmp + "/answers", "w+b")
        self.p = subprocess.Popen([llmq, "run", demo, *args], stdin=slave, stderr=slave, stdout=self.out, start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = ""

    def wait_for(self, pattern, seconds=60):
        """Reads what the terminal shows until pattern is there; what stood before it and with it."""
        end = time.time() + seconds
        while not (m := re.search(pattern, self.seen)):
            if not select.select([self.master], [], [], max(0, end - time.time()))[0]:
                sys.exit(f"chat: no {pattern!r} on the terminal, which shows {self.seen!r}")
            try:
                self.seen += os.read(self.master, 65536).decode()
            except OSError:
                sys.exit(f"chat: it ended before {pattern!r}: {self.seen!r}")
        before, self.seen = self.seen[:m.end()], self.seen[m.end():]
        return before

    def say(self, line, until=r"\r\n> "):
        os.write(self.master, line.encode() + b"\n")
        self.wait_for(r"\r\n")                       # the echo
        self.seen = "\r\n" + self.seen
        return self.wait_for(until)

    def end(self, keys=b"\x04", status=0):
        os.write(self.master, keys)
        try:
            while data := os.read(self.master, 65536):
                self.seen += data.decode()
        except OSError:
            pass
        if self.p.wait(60) != status:
            sys.exit(f"chat: status {self.p.returncode}, expected {status}: {self.seen!r}")
        os.close(self.master)

    def answers(self):
        with open(tmp + "/answers", "rb") as f:
            return f.read().decode()


def on_a_line(text):
    return text if text.endswith("\n") else text + "\n"


def expect(what, ok):
    if not ok:
        sys.exit("chat: " + what)


def messages(talk, name="saved.json"):
    talk.say(f"/save {tmp}/{name}")
    return json.load(open(f"{tmp}/{name}"))


# the history goes into each prompt, and an answer is what `llmq run -p` makes of it
t = Talk("--chat-template", "none", "-n", "12", "--temperature", "0")
t.wait_for("> ")
t.say("Once upon a time")
t.say("Lily was")
saved = messages(t)
expect(f"roles {saved}", [m["role"] for m in saved] == ["user", "assistant"] * 2)
expect(f"contents {saved}", saved[0]["content"] == "Once upon a time" and saved[2]["content"] == "Lily was")
expect("what was shown is what was saved", t.answers() == "".join(on_a_line(m["content"]) for m in saved if m["role"] == "assistant"))
prompt = "\n".join(m["content"] for m in saved[:3])
alone = subprocess.run([llmq, "run", demo, "--chat-template", "none", "-n", "12", "--temperature", "0", "-p", prompt, "--json"], stdout=subprocess.PIPE)
expect("the second answer is that of the whole history", json.loads(alone.stdout)["text"] == saved[3]["content"])
stats = t.say("/stats")
expect(f"kept keys and values: {stats!r}", re.search(r"prompt +\d+ tokens \(\d+ kept from before\)", stats) and "4 messages" in stats)

# commands
expect("/help", "/regen" in t.say("/help"))
expect("/nonsense", "there is no /nonsense; /help" in t.say("/nonsense x"))
expect("/stats x", "/stats takes nothing, found 'x'" in t.say("/stats x"))
expect("/save", "it needs the name of a file" in t.say("/save"))
expect("/save to nowhere", "No such file or directory" in t.say("/save /no/such/folder"))
expect("/regen at temperature 0", "the same answer comes again" in t.say("/regen"))
expect("/regen replaces", messages(t) == saved)
t.say("/reset")
expect("/reset", messages(t) == [])
expect("/regen of nothing", "there is no answer yet" in t.say("/regen"))
t.say("   ")
expect("a blank line says nothing", messages(t) == [])

# messages of several lines, and with a slash
t.say("one\\", r"\r\n\. ")
t.say("two")
t.say('"""three', r"\r\n\. ")
t.say("", r"\r\n\. ")
t.say('four"""')
t.say('"""five"""')
t.say("//six")
said = [m["content"] for m in messages(t) if m["role"] == "user"]
expect(f"{said}", said == ["one\ntwo", "three\n\nfour", "five", "/six"])

# a fenced message is no command, and its lines stay as they are; Ctrl-D ends a message, and not the conversation
t.say("/reset")
t.say('"""/exit', r"\r\n\. ")
t.say('// comment"""')
t.say('"""', r"\r\n\. ")
t.say("", r"\r\n\. ")
t.say('  indented"""')
t.say('"""seven', r"\r\n\. ")
os.write(t.master, b"\x04")
t.wait_for(r"\r\n> ")
t.say("eight\\", r"\r\n\. ")
os.write(t.master, b"\x04")
t.wait_for(r"\r\n> ")
said = [m["content"] for m in messages(t) if m["role"] == "user"]
expect(f"{said}", said == ["/exit\n// comment", "\n  indented", "seven\n", "eight\n"])

# a line that the terminal has cut is not sent
cut = t.say("a" * 6000)
expect(f"a cut line: {cut[-200:]!r}", "a terminal cuts a line after 4095 bytes" in cut)

# /save replaces a file of its own kind only
os.mkfifo(tmp + "/fifo")
expect("/save to a pipe", "is not a regular file" in t.say(f"/save {tmp}/fifo"))
expect("/save over the model", "the input" in t.say(f"/save {demo}"))
expect("it is still there", os.path.getsize(demo) > 1000000)

# what the context has no room for is said, and the conversation goes on
t.say("/reset")
full = t.say('"""' + "word " * 700, r"\r\n\. ")
full = t.say('"""')
expect(f"too long: {full!r}", "the prompt has" in full and "/reset begins anew" in full)
expect("the message is taken back", messages(t) == [])

# a hint, and then the end
os.write(t.master, b"half a li\x03")
t.wait_for("Ctrl-D ends the conversation.*\r\n> ")
t.say("Hello")
expect("what stood in the line is gone", messages(t)[0]["content"] == "Hello")
os.write(t.master, b"\x03")
t.wait_for("Ctrl-D ends the conversation.*\r\n> ")
t.end(b"\x03", 130)

# Ctrl-C stops an answer and keeps what was said
t = Talk("--chat-template", "none", "--ignore-eos", "--temperature", "1", "--seed", "3")
t.wait_for("> ")
os.write(t.master, b"Once\n")
deadline = time.time() + 60
while not t.answers() and time.time() < deadline:
    time.sleep(0.01)
os.write(t.master, b"\x03")
t.wait_for(r"\[stopped.*\r\n> ")
first = messages(t)
expect(f"the part is kept: {first}", len(first) == 2 and first[1]["content"] and t.answers() == on_a_line(first[1]["content"]))


def cpu_ticks():
    with open(f"/proc/{t.p.pid}/stat") as f:
        return sum(map(int, f.read().rpartition(")")[2].split()[11:13]))


before = cpu_ticks()
time.sleep(0.5)
expect("no work while it waits", cpu_ticks() - before < 0.2 * os.sysconf("SC_CLK_TCK"))
os.write(t.master, b"/regen\n")
while len(t.answers()) < len(first[1]["content"]) + 20 and time.time() < deadline:
    time.sleep(0.01)
os.write(t.master, b"\x03")
t.wait_for(r"\[stopped.*\r\n> ")
expect("/regen takes the next seed", messages(t)[1]["content"][:20] != first[1]["content"][:20])
os.kill(t.p.pid, signal.SIGTERM)
t.end(b"", 130)

# the context fills up
t = Talk("--chat-template", "none", "--ctx", "40", "--ignore-eos")
t.wait_for("> ")
expect("full", "the context of 40 tokens is full: /reset" in t.say("Once upon a time"))
t.say("/exit", "")
t.end(b"")

# what a conversation cannot be
for args, says in ((["--raw"], "a conversation has no --raw"), (["--json"], "a conversation has no --json"), ([], "no chat template: pass --chat-template"),
                   (["--chat-template", "none", "--system", "x"], "a system message needs a chat template")):
    t = Talk(*args)
    t.wait_for(re.escape(says))
    t.end(b"", 2)
PY
echo "chat: a conversation, its commands, interruptions and limits"
