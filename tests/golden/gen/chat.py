#!/usr/bin/env python3
"""Writes tests/golden/chat/cases.json: what jinja2, set up as transformers sets it up for chat templates, makes of the
templates in tests/golden/chat/*.jinja and of the snippets below.

    python3 tests/golden/gen/chat.py            # jinja2 >= 3.1
    python3 tests/golden/gen/chat.py --fuzz N SEED > cases.json    # N random small templates instead
    ... --self-check                            # the set-up here against transformers' own, where it is installed

A case has a template (or a file's name), the name of a context and one of: text, error (anything that Jinja or Python
raised), refused (the text of raise_exception).  checkchat (tests/golden/checkchat.c) reads them."""
import copy
import datetime
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent.parent / "chat"
NOW = datetime.datetime(2024, 7, 4, 9, 5, 7)  # local time: checkchat runs with TZ=UTC


class Refused(Exception):
    pass


class Generation(jinja2.ext.Extension):
    """{% generation %}: prints its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller):
        return caller()


def refuse(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def case(name, context_name, context, template=None, file=None):
    out = {"name": name, "context": context_name, **({"template": template} if file is None else {"file": file})}
    try:
        text = ENV.from_string(template if file is None else (HERE / file).read_text()).render(**copy.deepcopy(context))
        text.encode()
        out["text"] = text
    except Refused as e:
        out["refused"] = str(e)
    except Exception as e:  # noqa: BLE001: every failure is an expectation
        out["error"] = f"{type(e).__name__}: {e}"
    return out


# ---- conversations -----------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a town <now> & later",
    "parameters": {"type": "object", "required": ["town"], "properties": {
        "town": {"type": "string", "description": "Größe \"é\" 東京"}, "days": {"type": "integer", "enum": [1, 3, 7]},
        "unit": {"type": ["string", "null"], "default": None}}}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"town": "Ulm", "days": 3, "x": 1.5, "ok": True}}}]}
TALKS = {
    "one": [{"role": "user", "content": "Hello there"}],
    "system": [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": " What is 2 + 2? "}],
    "long": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"},
             {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello! "}, {"role": "user", "content": "Why?\n\nReally."},
             {"role": "assistant", "content": "Because 你好 😀"}, {"role": "user", "content": "…and?"}],
    "open": [{"role": "user", "content": "Write"}, {"role": "assistant", "content": "Once upon"}],
    "twice": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "nice?"}]}],
    "tools": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather in Ulm?"}, CALL,
              {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": "{\"t\": 21}"},
              {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": "sunny"},
              {"role": "assistant", "content": "21 degrees."}, {"role": "user", "content": "Thanks"}],
    "think": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4", "reasoning_content": "Add them."},
              {"role": "user", "content": "3+3"}],
    "none": [{"role": "user", "content": None}],
    "odd": [{"role": "narrator", "content": "It rains."}],
    "empty": [],
}


def contexts():
    for name, messages in TALKS.items():
        yield name, {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": name != "open",
                     **({"tools": [TOOL, TOOL]} if name == "tools" else {})}
    yield "flags", {"messages": TALKS["long"], "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None,
                    "enable_thinking": False, "documents": [{"title": "One", "text": "1\n2"}], "date_string": "1 May 2025"}


# ---- snippets ------------------------------------------------------------------------------------------

VALUES = {"n": 7, "z": 0, "neg": -3, "x": 2.5, "big": 1e20, "tiny": 1e-7, "t": True, "none": None, "s": "Hello, World", "e": "",
          "u": "straße ÉCOLE ǆ 你好 😀", "ws": "  \t a  b\nc \n", "html": "<a href='x'>&\"</a>", "l": [3, 1, 2], "el": [], "ls": ["b", "A", "c", "a"],
          "d": {"b": 1, "a": {"x": [1, 2, {"y": "z"}]}, "C": None}, "ed": {}, "nest": [[1, 2], [3, 4]], "lines": "one\n\ntwo\r\nthree\n",
          "rows": [{"k": "x", "v": 1, "on": True}, {"k": "Y", "v": 3, "on": False}, {"k": "x", "v": 2}], "items": [1, 2], "f3": 3.0}

EXPRESSIONS = r"""
n + x | n - neg * 2 | n / 2 | n // 2 | neg // 2 | neg % 5 | n % neg | x % 2 | x // 1 | 2 ** 10 | 2 ** -1 | -2 ** 2 | n / z | n % z | n // z | big | tiny
0.1 + 0.2 | 1e16 | 123456789.125 | 1_000 | 1.5e-3 | 100000000000000000000 | f3 | f3 * 2 | -x | +n | - -n | not n | not z | t + 1 | t * "ab" | "ab" * 3 | 3 * "ab" | [1] * 2 | s + 1
s ~ 1 ~ none ~ t ~ x ~ l | "a" ~ undefined_thing ~ "b" | l + [4] | (1,) + (2, 3) | s + s | "a" "b" 'c' | 'it''s'
n == 7 | n == 7.0 | t == 1 | none == none | s == "Hello, World" | l == [3, 1, 2] | l == (3, 1, 2) | d == d | e == none | s != e | nest == [[1, 2], [3, 4]]
1 < 2 < 3 | 1 < 3 < 2 | n >= 7 <= 8 | "a" < "b" | "a" < 1 | l < [3, 2] | (1, 2) < (1, 3) | none < 1 | "é" > "z" | 3 in l | 9 not in l | "ell" in s | "" in s | "b" in d | "x" in e | 1 in s | none in l | missing in l | 1 in missing
n and s | e and s | e or s | none or z or "last" | not none and t | n if t else s | n if e else s | n if e | (n if e) is defined | 1 if 0 else 2 if 0 else 3 | (1, 2, 3) | (1,) | () | 1, 2 | [1, [2, "a'b", 'q"', 'b"\'c', "n\n\t\\"]] | {"a": 1, 2: [none, true, false], "c": {"d": x}} | {} | [] | [[]] | ["é", "\u200b", "\x07", "😀", "\u00ad"]
true | True | false | none | None | l[0] | l[-1] | l[9] | l[9] is defined | l["a"] | l[none] | s[0] | s[-1] | u[6] | s[99] | d["b"] | d["zz"] | d.b | d.a.x[2].y | d.zz | d.zz.y | d["zz"]["y"] | missing | missing.x | missing[0] | none.x | none.x is defined | n.x | d.C.x | x.y is defined | s.nothing is undefined | items | (d.items()|list) | (d.keys()|list) | (d.values()|list) | d.get("b") | d.get("q") | d.get("q", 5) | d.get("C", 9) | d.copy()
l[1:] | l[:-1] | l[::2] | l[::-1] | l[5:] | l[:2:1] | s[1:4] | s[::-1] | s[-3:] | u[::-1] | s[3:1] | l[none:2] | l[::0] | e[::-1] | (1, 2, 3)[1:] | d[1:] | nest[0][1] | nest[1:][0] | l[1:][0]
s.upper() | s.lower() | s.title() | s.capitalize() | u.upper() | u.lower() | u.title() | u.capitalize() | "they're bill's 3rd".title() | ws.strip() | ws.lstrip() | ws.rstrip() | s.strip("Hd") | s.strip("") | s.lstrip("eH") | s.rstrip("dlr") | "xxaxx".strip("x") | ws.split() | s.split(",") | s.split(", ", 1) | "a,b,,c".split(",") | "a,b,c".split(",", 1)[-1] | "a b  c".split(none, 1) | "a,b,c".rsplit(",", 1) | "".split() | "".split(",") | s.split("") | lines.splitlines() | lines.splitlines(true) | "a</think>b".split("</think>")[0] | "a</think>b".split("</think>")[-1].lstrip("\n")
s.startswith("Hell") | s.startswith(("x", "He")) | s.endswith("ld") | s.endswith("x") | s.find("o") | s.rfind("o") | s.find("zz") | s.index("W") | s.index("zz") | s.count("l") | s.count("") | u.find("你") | s.replace("l", "L") | s.replace("l", "L", 1) | s.replace("", "-") | e.replace("", "x") | "-".join(ls) | "-".join(l) | "".join([]) | s.removeprefix("Hello") | s.removesuffix("x") | "abc".isalpha() | "ab1".isalnum() | "12".isdigit() | "".isdigit() | "1.5".isnumeric() | " \n".isspace() | "ABC d".isupper() | "abc".islower() | l.index(1) | l.index(9) | l.count(3) | l.append(1) | d.update({}) | d.pop("b") | l.sort() | l.copy() | s.nosuch() | n() | s() | missing() | missing.f() | s.upper(1) | s.replace("a") | d.get()
l | length ;; s | length ;; u | length ;; d | length ;; n | length ;; missing | length ;; none | length ;; e | count ;; s | upper ;; n | upper ;; u | lower ;; u | title ;; "foo-bar (baz) o'neil" | title ;; "hELLO wORLD" | capitalize ;; ws | trim ;; s | trim("Hd") ;; none | trim ;; n | string ;; none | string ;; l | string ;; missing | string
l | join ;; l | join(", ") ;; rows | join("-", attribute="k") ;; s | join(".") ;; d | join ;; el | join(",") ;; missing | join ;; [1, none, "a"] | join("|") ;; l | first ;; l | last ;; el | first ;; el | last ;; s | first ;; d | first ;; missing | first ;; d | last ;; (1, 2) | last
missing | default("x") ;; none | default("x") ;; none | default("x", true) ;; e | default("x") ;; e | d("x", boolean=true) ;; missing | default ;; missing.x | default("deep") ;; d.zz | default(l) ;; z | default(5, true)
l | sort ;; ls | sort ;; ls | sort(case_sensitive=true) ;; ls | sort(reverse=true) ;; rows | sort(attribute="v") | map(attribute="v") | list ;; rows | sort(attribute="k") | map(attribute="v") | list ;; rows | sort(true, attribute="k") | map(attribute="v") | list ;; [1, "a"] | sort ;; s | sort ;; d | sort ;; l | reverse | list ;; s | reverse ;; el | reverse | list ;; n | reverse ;; d | dictsort ;; d | dictsort(true) ;; {"a": 2, "b": 1} | dictsort(by="value") ;; {"a": 2, "b": 1} | dictsort(reverse=true) ;; l | dictsort
l | list ;; s | list ;; d | list ;; n | list ;; l | sum ;; l | sum(start=10) ;; rows | sum(attribute="v") ;; [1, x] | sum ;; el | sum ;; ls | sum ;; l | min ;; l | max ;; ls | min ;; ls | max ;; el | max ;; rows | max(attribute="v") ;; ls | unique | list ;; ["a", "A", "b", 1, 1.0, true] | unique | list ;; ["a", "A"] | unique(true) | list ;; rows | unique(attribute="k") | map(attribute="v") | list
rows | map(attribute="k") | list ;; rows | map(attribute="on", default="?") | list ;; rows | map(attribute="on") | list ;; ls | map("upper") | join ;; l | map("string") | list ;; ls | map("replace", "a", "X") | list ;; l | map("nosuch") | list ;; l | map | list ;; nest | map("first") | list ;; nest | map(attribute=1) | list ;; rows | map(attribute="k.0") | list ;; d | map("upper") | list ;; l | map("default", 3) | list
l | select("odd") | list ;; l | select("gt", 1) | list ;; l | select(">", 1) | list ;; l | reject("even") | list ;; [0, 1, "", none] | select | list ;; [0, 1, "", none] | reject | list ;; rows | selectattr("on") | list | length ;; rows | selectattr("k", "equalto", "x") | map(attribute="v") | list ;; rows | selectattr("k", "==", "x") | list | length ;; rows | rejectattr("on", "defined") | list | length ;; rows | selectattr("v", "in", [1, 2]) | list | length ;; rows | rejectattr("on") | map(attribute="v") | list ;; l | select("nosuch") | list ;; rows | selectattr("k", "string") | first
n | int ;; "12" | int ;; " -12 " | int ;; "1.9" | int ;; "x" | int ;; "x" | int(5) ;; x | int ;; -2.7 | int ;; t | int ;; none | int ;; l | int ;; "ff" | int(0, 16) ;; "0x1f" | int(0, 16) ;; "2.5" | float ;; "x" | float ;; "x" | float(1.5) ;; n | float ;; none | float ;; "1e3" | float ;; neg | abs ;; x | abs ;; -2.5 | abs ;; s | abs ;; x | round ;; 3.5 | round ;; 2.567 | round(2) ;; 2.1 | round(0, "ceil") ;; 2.9 | round(method="floor") ;; n | round ;; 2.5 | round | int ;; s | round
html | e ;; html | escape ;; html | safe ;; n | e ;; "a\nb\n\nc" | indent ;; "a\nb" | indent(2) ;; "a\nb" | indent(2, true) ;; "a\n\nb" | indent(1, blank=true) ;; "a\nb" | indent("> ", true) ;; "a\n" | indent(2) ;; e | indent(2, true) ;; s | wordcount ;; s | replace("l", "L") ;; s | replace("l", "L", 2) ;; n | replace(7, 8) ;; s | replace("", "-") ;; s | wordwrap(3) ;; s | nosuch ;; s | attr("upper") is defined ;; d | attr("b") is defined ;; d | items | list ;; missing | items | list ;; l | items | list
d | tojson ;; l | tojson ;; s | tojson ;; u | tojson ;; u | tojson(true) ;; u | tojson(ensure_ascii=true) ;; html | tojson ;; none | tojson ;; t | tojson ;; x | tojson ;; f3 | tojson ;; big | tojson ;; tiny | tojson ;; 1e16 | tojson ;; 123456.75 | tojson ;; d | tojson(indent=2) ;; d | tojson(indent=0) ;; d | tojson(indent="\t") ;; d | tojson(sort_keys=true) ;; {"b": 1, "a": 2} | tojson(sort_keys=true) ;; d | tojson(separators=(",", ":")) ;; d | tojson(separators=(",", ":"), indent=1) ;; [] | tojson(indent=2) ;; {} | tojson(indent=2) ;; [[], {}] | tojson(indent=2) ;; (1, 2) | tojson ;; {1: 2, none: 3, true: 4, 2.5: 1} | tojson ;; missing | tojson ;; [missing] | tojson ;; "\x00\x1f\x7f\u2028\"\\/" | tojson ;; "\x7fé😀" | tojson(true) ;; d.items() | list | tojson
n is number ;; s is string ;; l is sequence ;; s is sequence ;; d is mapping ;; l is mapping ;; d is sequence ;; l is iterable ;; n is iterable ;; s is iterable ;; none is none ;; missing is none ;; missing is defined ;; missing is undefined ;; d.zz is defined ;; n is integer ;; t is integer ;; x is float ;; t is boolean ;; n is boolean ;; t is number ;; t is true ;; n is true ;; none is false ;; false is false ;; n is odd ;; n is even ;; neg is odd ;; n is divisibleby(7) ;; n is divisibleby 7 ;; n is eq 7 ;; n is equalto(7) ;; n is sameas 7 ;; n is gt 5 ;; n is lt(5) ;; n is ge 7 ;; n is ne 7 ;; 3 is in l ;; s is in ["a"] ;; n is not in l ;; s is lower ;; "abc" is lower ;; "ABC" is upper ;; n is lower ;; s is callable ;; s.upper is callable ;; range is callable ;; n is nosuch ;; n is not odd ;; not n is odd ;; n is odd and t ;; n is defined and n is number ;; s is test ;; n is filter ;; 1 is sameas true ;; none is sameas none ;; s is escaped ;; n is not none ;; n is number is true
range(5) | list ;; range(2, 8, 3) | list ;; range(5, 0, -2) | list ;; range(0) | list ;; range(3)[1] ;; range(3) | length ;; range(1, 2, 0) | list ;; range(100001) | list ;; dict(a=1, b="x") ;; dict(a=1).a ;; dict({"q": 2}, r=3) ;; dict([["a", 1]]) ;; namespace(a=1).a ;; namespace().zz is defined ;; strftime_now("%Y-%m-%d") ;; strftime_now("%d %b %Y, %A %H:%M:%S %j %p %%") ;; raise_exception("no: " ~ s) ;; loop ;; caller ;; loop.index ;; varargs
"\n\t\\\'\"" ;; "\x41\u00e9\U0001F600\101\0" ;; "a\q" ;; "é" ;; '{{ x }}' ;; "{% if %}" ;; "%}" ;; [1,2,] ;; {"a":1,} ;; (1,2,) ;; l [0] ;; s . upper ( ) ;; (s)|upper ;; s|upper|lower|title ;; -1|abs ;; -n|abs ;; (n - 10)|abs ;; 1+2|string ;; not s|length ;; 2*3+4*5 ;; 2+3*4**2 ;; 2**3**2 ;; 10-3-2 ;; 100//7//2 ;; 7-2~1 ;; 1~2+3 ;; 1 + 2 == 3 and 2 in l ;; "a" in "abc" == true ;; x is not defined or n ;; l[0] if l else none ;; [x for x in l] ;; lambda ;; {"a": 1}.a ;; [1, 2][0] ;; "abc"[1] ;; "abc".upper()[0] ;; 1..x ;; 1.5.x ;; n..x ;; n.0 ;; l.0 ;; nest.0.1 ;; d.a.x.0 ;; if ;; else ;; n if ;; and ;; n and ;; n = 3 ;; n == ;; ! n ;; n & 1 ;; n ? 1 : 2 ;; f(**d) ;; dict(**ed) ;; s.startswith(*["H"]) ;; n!==2 ;; "abc ;; 1 2 ;; s upper ;; n.__class__ ;; s.__len__() ;; s._x ;; d.__class__ is defined ;; "%s-%s" % (1, 2) ;; "%d" % 3 ;; s.format(1) ;; "{}".format(1) ;; s.encode() ;; s.center(20) ;; "a".zfill(3) ;; "a".ljust(3) ~ "|" ;; s.partition(",") ;; s.swapcase() ;; s.expandtabs() ;; "5" is number
"""

STATEMENTS = r"""
{% for i in l %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for i in el %}x{% else %}none{% endfor %}|{% for i in missing %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d | dictsort %}{{ k }}{% endfor %}
{% for a, b in nest %}{{ a * b }} {% endfor %}{% for (a, b) in nest %}{{ a }}{% endfor %}
{% for i in range(10) if i is odd %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}
{% for i in l if i > 5 %}x{% else %}nothing{% endfor %}
{% for i in l %}{% for j in nest %}{{ loop.index }}{{ loop.depth0 }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in range(6) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}
{% for i in [] %}{% break %}{% else %}E{% endfor %}{% for i in [1] %}{% break %}{% else %}E{% endfor %}
{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% for c in s %}{{ c }}.{% endfor %}{% for c in u %}[{{ c }}]{% endfor %}
{% for i in n %}{% endfor %}
{% for i in none %}{% endfor %}
{% for a, b in l %}{% endfor %}
{% set i = 9 %}{% for i in l %}{{ i }}{% endfor %}{{ i }}
{% set a = 1 %}{% for i in l %}{% set a = i %}{{ a }}{% endfor %}{{ a }}
{% set ns = namespace(a=0, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}
{% set ns = namespace({"q": 1}, r=2) %}{{ ns.q }}{{ ns.r }}{% set ns.new = 5 %}{{ ns.new }}{{ ns.nothing }}
{% set d.b = 5 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, e) = l[:2] %}{{ c }}{{ e }}
{% set a, b = l %}
{% set a %}  text {{ n }} {% endset %}[{{ a }}]{{ a | length }}
{% set a | upper | trim %}  text {{ n }} {% endset %}[{{ a }}]
{% set a | replace("t", "T") %}tt{% endset %}{{ a }}
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if e %}a{% elif el %}b{% elif s %}c{% endif %}{% if e %}x{% endif %}.
{% if t %}{% set q = 4 %}{% endif %}{{ q }}{% if not t %}{% set w = 1 %}{% endif %}{{ w is defined }}
{% if missing %}a{% else %}b{% endif %}{% if missing.x %}a{% endif %}
{% macro m(a, b=2, c="x" ~ n) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(b=1, a=0) }}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, q=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}
{% macro m(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ m(1, q=2) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}
{% macro f(k) %}{% if k > 0 %}{{ k }},{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}body {{ n }}{% endcall %}
{% macro m(l) %}{% for i in l %}<{{ caller(i, i * 2) }}>{% endfor %}{% endmacro %}{% call(a, b) m(l) %}{{ a }}:{{ b }}{% endcall %}
{% macro m() %}{{ g }}{% endmacro %}{% set g = 1 %}{{ m() }}{% set g = 2 %}{{ m() }}
{% set g = 0 %}{% macro m() %}{{ g }}{% set g = 5 %}{{ g }}{% endmacro %}{{ m() }}{{ g }}
{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m("a") ~ m("b") }}{{ m("q") | lower }}{{ m("  q ") | trim | length }}{{ m("a") is string }}
{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% if t %}{% macro m() %}in{% endmacro %}{% endif %}{{ m() }}
{% macro m() %}x{% endmacro %}{{ m.name }}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace("a", "b") | trim %} aa {% endfilter %}.
{% generation %}answer {{ n }}{% endgeneration %}.{% generation %}{% set gg = 1 %}{% endgeneration %}{{ gg is defined }}
{% raw %}{{ n }} {% if %} {# x #}{% endraw %}.{%- raw -%}  a  {%- endraw -%}  b
{# comment #}a{#- c -#}  b  {#++#}
multi #}
c
  {% if t %}
    indented
  {% endif %}
  end
x  {%- if t -%}  y  {%- endif -%}  z
x  {%+ if t +%}  y  {% endif +%}
 z
  {%+ if t %}y{% endif %}
{{ n -}}   a   {{- n }}  b
{%- set a = 1 -%}

{{ a }}
a {{ n }}
b {{ n }} 
 c
	{# tab #}	x
{% if t %}

a
{% endif %}

b
{{ "a" }}{{ 'b' }}{{ "{{" }}{{ "}}" }}{{ {"a": {"b": 1}}.a.b }}
{% set x = {"a": 1} %}{{ x.a }}{% set x = {} %}{{ x }}
{%set x=1%}{{x}}{%for i in l%}{{i}}{%endfor%}{%if t%}y{%endif%}
{% for m in rows %}{{ m.k ~ ':' ~ m['v'] + 1 }}{{ '' if loop.last else '|' }}{% endfor %}
{% for m in rows[1:] %}{{ m.k }}{{ loop.changed(m.k) }}{{ loop.cycle("a", "b") }}{% endfor %}
{% for m in rows %}{% if loop.changed(m.k) %}{{ m.k }}{% endif %}{% endfor %}
{% include "x" %}
{% extends "x" %}
{% block a %}x{% endblock %}
{% import "x" as y %}
{% from "x" import y %}
{% do l.append(1) %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% with %}{% set q = 3 %}{{ q }}{% endwith %}{{ q is defined }}
{% set q = 1 %}{% with q = q + 1, r = q %}{{ q }}{{ r }}{% endwith %}
{% autoescape true %}{{ html }}{% endautoescape %}
{% for i in l recursive %}{% endfor %}
{% break %}
{% if t %}
{% endif %}{% endif %}
{% for i in l %}{% endif %}
{{ n
{{ n }
{% if t
{% if %}x{% endif %}
{% nosuch %}
{% set %}
{% set a = %}
{% set 1 = 2 %}
{% set none = 2 %}
{% for in l %}{% endfor %}
{% for i of l %}{% endfor %}
{# open
{% raw %} open
{{ }}
{{}}
{% %}
}} %} #} { % {
{{ n }}}}{{{ "a": 1 }}}
{{ raise_exception("stop") if t else "" }}
{{ raise_exception("stop") if not t else "go" }}
{% if n != 7 %}{{ raise_exception("wrong " + s) }}{% endif %}ok
{% for message in rows %}{% if loop.index0 % 2 == 0 %}{{ loop.index0 }}{% else %}{{ raise_exception("Roles must alternate") }}{% endif %}{% endfor %}
{%- macro render(x, depth=0) -%}{%- if x is mapping -%}{ {%- for k, v in x | dictsort -%}{{ k }}: {{ render(v, depth + 1) }}{%- if not loop.last %}, {% endif -%}{%- endfor -%} }{%- elif x is string -%}"{{ x }}"{%- elif x is sequence -%}[{%- for i in x -%}{{ render(i, depth + 1) }}{{ "," if not loop.last }}{%- endfor -%}]{%- else -%}{{ x }}@{{ depth }}{%- endif -%}{%- endmacro -%}{{ render(d) }}
{% set ns = namespace(found=false) %}{% for r in rows[::-1] %}{% if not ns.found and r.k == "x" %}{% set ns.found = true %}{{ r.v }}{% endif %}{% endfor %}{{ ns.found }}
{% set x = l | length if l is not string else s %}{{ x }}{% set y = (n if t) %}{{ y }}{% set z %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ z }}
{{ namespace(a=1) is mapping }}{{ [namespace()] | length }}
{% for i in l %}{% set loop_outer = loop %}{% for j in [1] %}{{ loop_outer.index }}{% endfor %}{% endfor %}
{% set items = rows | selectattr("on", "defined") | list %}{{ items | length }}{{ (rows | first).k }}{{ (rows | last)["v"] }}
{% if s is string and not s.startswith("X") and (n > 3 or z) %}yes{% endif %}
{% for i in "ab" ~ "c" %}{{ i }}{% endfor %}{% for i in l + [9] %}{{ i }}{% endfor %}{% for i in (1, 2) %}{{ i }}{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}
{% for i in l if i is odd else el %}{% endfor %}
{% for a, b, c in [[1, 2, 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for i, (a, b) in [[1, [2, 3]]] %}{{ i }}{{ a }}{{ b }}{% endfor %}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}
{% macro m(a, a) %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro outer() %}{% macro inner(x) %}{{ x }}!{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% set q = 5 %}{% macro m() %}{{ q }}{% endmacro %}{% for i in [1] %}{% set q = 6 %}{{ m() }}{% endfor %}
{% for i in l %}{{ i }}{% endfor -%}   tail
{% for i in l -%}
  {{ i }}
{%- endfor %}
a
  {%- if t %}
b
  {%- endif %}
c
{%- if t %}x{% endif %}

 {{- "y" }}
   {{ n }}   
{{ n }}
   {% set p = 1 %}   
   {# c #}   
	{%- set p = 2 +%}   
end
"""


def snippets():
    i = 0
    for line in EXPRESSIONS.strip().split("\n"):
        for e in line.split(" ;; " if " ;; " in line else " | "):
            i += 1
            yield case(f"expression {i}", "values", VALUES, template="{{ " + e + " }}")
    # Each line alone, and blocks of lines for the white space between them.
    lines = STATEMENTS.strip("\n").split("\n")
    for i, line in enumerate(lines, 1):
        yield case(f"statement {i}", "values", VALUES, template=line)
    for i in range(0, len(lines) - 4):
        yield case(f"statements from {i + 1}", "values", VALUES, template="\n".join(lines[i:i + 4]))


def families():
    for path in sorted(HERE.glob("*.jinja")):
        for name, context in contexts():
            yield case(f"{path.stem} {name}", name, context, file=path.name)


# ---- random templates ------------------------------------------------------------------------------------

class Fuzz:
    def __init__(self, rng):
        self.r = rng

    def pick(self, *a):
        return self.r.choice(a)

    def expr(self, d=0):
        r = self.r
        if d > 3 or r.random() < 0.3:
            return r.choice(list(VALUES) + ["missing", "1", "0", "-2", "1.5", "'a'", '"b c"', "''", "none", "true", "false", "[]", "{}", "()", "i", "a"])
        k = r.randrange(14)
        e = lambda: self.expr(d + 1)  # noqa: E731
        if k == 0:
            return f"{e()} {self.pick('+', '-', '*', '/', '//', '%', '~', '**' if d > 2 else '~')} {e()}"
        if k == 1:
            return f"{e()} {self.pick('==', '!=', '<', '>', '<=', '>=', 'in', 'not in', 'and', 'or')} {e()}"
        if k == 2:
            return f"({e()})"
        if k == 3:
            return f"{e()} if {e()} else {e()}"
        if k == 4:
            return f"[{e()}, {e()}]" if r.random() < 0.6 else "{%s: %s}" % (self.pick("'k'", "1", "s"), e())
        if k == 5:
            return f"{self.atom(d)}[{self.pick('0', '-1', '1', repr('a'), repr('k'), '1:', ':1', '::-1', '::2', e())}]"
        if k == 6:
            return f"{self.atom(d)}.{self.pick('a', 'b', 'k', 'x', 'y', 'items() | list | string', 'nothing', 'b.x')}"
        if k == 7:
            return f"{self.atom(d)}.{self.pick('strip', 'upper', 'lower', 'title', 'split', 'keys() | list', 'items() | list', 'values() | list', 'capitalize', 'isdigit', 'splitlines')}()"
        if k == 8:
            return f"{self.atom(d)}.{self.pick('startswith', 'split', 'replace', 'find', 'count', 'get', 'strip', 'join', 'endswith', 'index')}({self.pick(e(), repr('a'), repr('a') + ', ' + repr('b'))})"
        if k in (9, 10):
            f = self.pick("upper", "lower", "trim", "length", "list", "first", "last", "join", "join(',')", "default('x')", "tojson", "string", "int",
                          "float", "abs", "sort", "reverse | list", "unique | list", "sum", "min", "max", "title", "capitalize", "indent(2)", "round",
                          "items | list", "dictsort", "map('string') | list", "select | list", "reject('none') | list", "map(attribute='k') | list",
                          "selectattr('v') | list", "replace('a', 'b')", "wordcount", "tojson(indent=1)", "map('upper') | join('-')", "select('string') | list")
            return f"{self.atom(d)} | {f}"
        if k == 11:
            t = self.pick("defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "odd", "even", "integer", "float", "boolean",
                          "true", "false", "lower", "upper", "eq 1", "in l", "divisibleby 2", "gt 1", "callable", "sameas none")
            return f"{self.atom(d)} is {self.pick('', 'not ')}{t}"
        if k == 12:
            return f"not {e()}" if r.random() < 0.7 else f"-{self.atom(d)}"
        return f"range({self.pick('3', 'n', '1, 4', '4, 0, -1')}) | list"

    def atom(self, d):
        return self.pick(*VALUES) if self.r.random() < 0.6 else f"({self.expr(d + 1)})"

    def tag(self, body):
        return "{%" + self.pick(" ", "- ", "+ ", " ", " ") + body + self.pick(" ", " -", " +", " ", " ") + "%}"

    def text(self):
        return self.pick("", "", " ", "\n", "x", " y ", "\n  ", "  \n", "\n\n", "\t", "é")

    def body(self, d):
        return "".join(self.text() + self.statement(d) + self.text() for _ in range(self.r.randrange(1, 4)))

    def statement(self, d=0):
        k = self.r.randrange(12 if d < 3 else 4)
        if k < 4:
            return self.pick("{{ ", "{{- ", "{{ ") + self.expr() + self.pick(" }}", " -}}", " }}")
        if k == 4:
            return self.tag(f"if {self.expr()}") + self.body(d + 1) + (self.tag("else") + self.body(d + 1) if self.r.random() < 0.5 else "") + self.tag("endif")
        if k in (5, 6):
            inner = self.body(d + 1)
            if self.r.random() < 0.3:
                inner += self.tag(f"if {self.expr(2)}") + self.tag(self.pick("break", "continue")) + self.tag("endif") + self.text()
            if self.r.random() < 0.4:
                inner += "{{ loop.index }}"
            return (self.tag(f"for {self.pick('i', 'a', 'j', 'i, a')} in {self.expr(2)}" + (f" if {self.expr(3)}" if self.r.random() < 0.2 else "")) + inner
                    + (self.tag("else") + self.body(d + 1) if self.r.random() < 0.2 else "") + self.tag("endfor"))
        if k == 7:
            return self.tag(f"set {self.pick('a', 'i', 'q')} = {self.expr()}")
        if k == 8:
            return self.tag(f"set {self.pick('a', 'q')}{self.pick('', ' | upper')}") + self.body(d + 1) + self.tag("endset")
        if k == 9:
            return self.tag(f"macro m(a, b={self.expr(3)})") + self.body(d + 1) + self.tag("endmacro") + "{{ m(" + self.expr(2) + self.pick("", ", b=1") + ") }}"
        if k == 10:
            return self.tag("set ns = namespace(a=0)") + self.tag("for i in l") + self.tag(f"set ns.a = {self.expr(2)}") + self.tag("endfor") + "{{ ns.a }}"
        return self.pick("{# c #}", "{#- c -#}", "{% filter upper %}" + self.body(d + 1) + "{% endfilter %}", "{% generation %}" + self.body(d + 1) + "{% endgeneration %}")


def fuzz(n, seed):
    rng = random.Random(seed)
    f = Fuzz(rng)
    for i in range(n):
        yield case(f"random {seed}/{i}", "values", VALUES, template=f.body(0))


def self_check():
    from transformers.utils import chat_template_utils as u
    for path in sorted(HERE.glob("*.jinja")):
        if "strftime_now" in path.read_text():
            continue
        for name, context in contexts():
            try:
                theirs = u._compile_jinja_template(path.read_text()).render(**context)
            except Exception:  # noqa: BLE001
                theirs = None
            if theirs != case("", name, context, file=path.name).get("text"):
                sys.exit(f"{path.name} {name}: the set-up here differs from transformers'")
    print("the same as transformers", file=sys.stderr)


def main():
    if sys.argv[1:2] == ["--self-check"]:
        return self_check()
    if sys.argv[1:2] == ["--fuzz"]:
        cases = list(fuzz(int(sys.argv[2]), int(sys.argv[3])))
        return print(json.dumps({"contexts": {"values": VALUES}, "cases": cases}))
    out = {"contexts": {**dict(contexts()), "values": VALUES}, "cases": [*families(), *snippets()]}
    lines = [json.dumps(c, ensure_ascii=False) for c in out["cases"]]
    (HERE / "cases.json").write_text('{"contexts": ' + json.dumps(out["contexts"], ensure_ascii=False) + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")


main()
