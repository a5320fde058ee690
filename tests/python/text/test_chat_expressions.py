"""Random expressions of chat templates: the same text as transformers' Jinja, or an error of both."""

import os
import re
import unicodedata

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("needs transformers", allow_module_level=True)
hypothesis = pytest.importorskip("hypothesis")
pytest.importorskip("transformers")
from chat_peer import expected  # noqa: E402
from chat_template import Refused, Template  # noqa: E402
from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

EXAMPLES = settings(
    max_examples=int(os.environ.get("TEGULA_EXAMPLES", "200")), deadline=None, suppress_health_check=list(HealthCheck)
)
MESSAGES = [{"role": "user", "content": "x"}]
VARIABLES = {
    "i": 7, "z": 0, "f": 2.5, "b": True, "n": None, "s": "Hello, Wörld", "w": " \n two  words\u3000", "e": "", "q": "it's \"q\"\\",
    "l": [3, "a", None, [1, 2.0], {"k": "v"}], "m": [3, 1, 2], "c": ["b", "A", "c", "B"], "v": [],
    "d": {"b": 1, "a": "x", "items": "own", "B": [1]}, "o": [{"k": 2, "n": "x"}, {"k": 1}, {"k": 3, "n": "Y"}],
    "g": {"x": {"y": [10, 20]}, "update": 1, "get": 2},
}  # fmt: skip


def outcome(render, *args):
    try:
        return render(*args)
    except Refused as error:
        return error
    except Exception as error:
        return error


def compare(template, variables=VARIABLES, lenient=False):
    """The text is the same; or both fail. What we name UNSUPPORTED may work in Python, if `lenient`."""
    wanted = outcome(lambda: expected(template, MESSAGES, arguments=variables)[0])
    got = outcome(lambda: Template(template).render(MESSAGES, arguments=variables).text)
    if isinstance(wanted, Exception) or re.search("<[^>]* at 0x", wanted):  # the address of an object
        assert isinstance(got, Refused), (template, wanted, got)
    elif not (lenient and isinstance(got, Refused) and got.status == "UNSUPPORTED"):
        assert got == wanted, (template, str(got), wanted)


# ---- expressions: forms with "@" for an expression, "#" for a number, "?" for a short text ----


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


pieces = st.text("aAbB ,.xX'\"\\\n\té日🙂\u00a0\u2028%{}[]0", max_size=6).map(quoted)
small = st.integers(-4, 12).map(str)
names = st.sampled_from(sorted(VARIABLES) + ["u"])
words = st.sampled_from(["'a'", "'b'", "'x'", "'k'", "' '", "','", "'l'", "'items'", "'get'", "'y'", "''"])
literals = st.sampled_from(["0.5", "1.0", "1e3", "1e-7", "1e16", "0.1", "true", "false", "none", "[]", "{}", "()"])

FILTERS = """
length count trim upper lower capitalize title string list join first last int float abs tojson safe escape default sort unique
min max reverse sum items dictsort map('string') map('upper') select reject map(attribute='k') indent selectattr('n')
rejectattr('n','defined') sort(attribute='k') sort(reverse=true) string|list map(attribute='n',default='?') select('string')
reject('none') select('number')|list list|length dictsort(by='value') dictsort(true) tojson(indent=2) tojson(ensure_ascii=true)
join(attribute='k') tojson(sort_keys=true) tojson(separators=(',',':')) default('?',true) unique(true)|list map('int',9)
map('default','?')|join selectattr('k','>',1)|list indent(2,first=true) indent('>',blank=true) max(attribute='k')
min(attribute='k') sum(attribute='k') attr('x') default(@) join(@) join(?) trim(?) replace(?,@) replace(@,?,#) int(@) format(@)
select('equalto',@)|list select('in',@)|list map('replace',?,@)|join
""".split()
METHODS = """
strip() lstrip() rstrip() split() splitlines() upper() lower() items() keys() values() capitalize() rsplit() splitlines(true)
split(none,1) rsplit(none,1) copy() append(1) pop() update({}) clear() sort() strip(?) lstrip(@) rstrip(?) startswith(@)
endswith(?) split(?) split(@,#) rsplit(?,#) replace(?,@) replace(@,?,#) get(?) get(@,@) find(?) rfind(@,#) count(?) count(@,#)
index(@) join(@) partition(?) rpartition(@) removeprefix(?) removesuffix(@) startswith((?,@)) find(?,#,#) format(@,k=@)
""".split()
TESTS = """
defined undefined none string mapping sequence iterable number integer float boolean true false odd even divisibleby(3) eq(7)
lt(3) sameas(none) callable lower upper escaped in([1,'a']) equalto(@) in(@) greaterthan(@) ne(@)
""".split()
FORMS = (
    [f"(@)|{name}" for name in FILTERS]
    + [f"(@).{name}" for name in METHODS]
    + [f"(@) is {name}" for name in TESTS]
    + [f"(@) {sign} (@)" for sign in "+ - * / // % ~ == != < <= > >= and or".split() + ["in", "not in"] for _ in range(4)]
    + [f"(@){x}" for x in ".k .x .a .b .items .get .0 .1 .update .y [@] [?] [#]".split()]
    # Jinja slices constants by other rules, so there is a variable in each.
    + [f"(@, i)[0]{x}" for x in "[#:#] [:#] [#:] [::#] [#::#] [@:]".split()]
    + ["(@) if (@) else (@)", "(@) if (@)", "not (@)", "-(@)", "+(@)", "[@, @]", "(@, @)", "(@,)", "{?: @, (@): @}", "[@]", "{?: @}"]
    + ["(@) < (@) <= (@)", "(@) ** #", "(@) ** 0.5", "dict(k=@)", "range(#, #)|list", "namespace(x=@).x", "[@, @, @]|sort"]
)
atoms = {"@": names | names | small | words | pieces | literals, "#": small, "?": words}


@st.composite
def expressions(draw, depth=3):
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(atoms["@"])
    form = draw(st.sampled_from(FORMS))
    return "".join(draw(expressions(depth - 1) if c == "@" else atoms[c] if c in atoms else st.just(c)) for c in form)


@EXAMPLES
@given(expressions())
def test_expressions(expression):
    compare("{% set x = " + expression + " %}{{ x }}", lenient=True)


# ---- the same without brackets: what binds stronger ----

operands = names | small | st.sampled_from(["'a'", "d.b", "l[0]", "s|length", "-i", "not b", "m[-1]|string", "s.upper()"])
spaced = st.sampled_from([
    " + ", " - ", " * ", " // ", " % ", " ~ ", " == ", " < ", " in ", " not in ", " and ", " or ", " and not ", " is defined and ",
    " if b else ", " is not none or ", "|string ~ ", " is string if b else ", "|default(1) + ",
])  # fmt: skip


@EXAMPLES
@given(operands, st.lists(st.tuples(spaced, operands), max_size=5))
def test_precedence(first, rest):
    compare("{{ " + first + "".join(a + b for a, b in rest) + " }}", lenient=True)


# ---- numbers ----

numbers = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-50, 50), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 0.1, 1e16, 1e22, 5e-324, 2.0**-44, 1e-5, -0.0, 0.5, 1e15]),
)  # fmt: skip
arithmetic = st.sampled_from(["+", "-", "*", "/", "//", "%", "==", "<", ">=", "!="])


@EXAMPLES
@given(numbers, arithmetic, numbers)
def test_arithmetic(a, operator, b):
    """Whole numbers beyond 64 bits are refused, and nothing else."""
    arguments = {"a": a, "b": b}
    template = "{{ a " + operator + " b }} {{ a }} {{ [b]|tojson }} {{ -a }} {{ a|string|float == a }}"
    wanted = outcome(lambda: expected(template, MESSAGES, arguments=arguments)[0])
    try:
        got = Template(template).render(MESSAGES, arguments=arguments).text
    except Refused as error:
        if isinstance(wanted, Exception):
            return
        first = wanted.split(" ")[0]
        assert error.status == "UNSUPPORTED" and abs(int(first)) >= 2**63 - 1, (error, wanted)
        return
    assert got == wanted


@EXAMPLES
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_print_as_in_python(x):
    assert Template("{{ x }}").render(MESSAGES, arguments={"x": x}).text == repr(x)


@EXAMPLES
@given(st.text("0123456789_+-.eExXobinfaN ", max_size=9))
def test_texts_to_numbers(text):
    compare("{{ x|int }} {{ x|int(0, 16) }} {{ x|int(-1, 0) }} {{ x|float }}", {"x": text}, lenient=True)


# ---- text ----

# Python and utf8proc may know different versions of Unicode: what both know, and what no version will assign.
characters = st.characters(codec="utf-8").filter(lambda x: unicodedata.ucd_3_2_0.category(x) != "Cn") | st.sampled_from("\ufdd0\uffff")
texts = st.text(characters, max_size=12) | st.text("abc ,\n\r\t\x1c\x85\u2028\u3000", max_size=20)
SHOWN = """{{ x }}|{{ [x] }}|{{ x|tojson }}|{{ x|tojson(ensure_ascii=true) }}|{{ x|length }}|{{ x[1:] }}|{{ x[::-1] }}|{{ x[-2:-1] }}
{{ x.strip() }}|{{ x.split() }}|{{ x.rsplit(none, 1) }}|{{ x.splitlines() }}|{{ x|list }}|{{ {x: x} }}|{{ x|indent }}|{{ x|e }}"""


@EXAMPLES
@given(texts)
def test_texts(text):
    compare(SHOWN, {"x": text})


@EXAMPLES
@given(texts, st.text("abc ,\n", max_size=2), st.text("xy", max_size=2), st.integers(-2, 3))
def test_searching(text, part, fresh, count):
    template = (
        "{{ x.replace(p, r) }}|{{ x.replace(p, r, c) }}|{{ x.find(p) }}|{{ x.rfind(p) }}|{{ x.count(p) }}|{{ p in x }}|"
        "{{ x.startswith(p) }}|{{ x.endswith(p) }}|{{ x.strip(p) }}|{{ x.lstrip(p) }}|{{ x.rstrip(p) }}|{{ x.find(p, c) }}|"
        "{{ x.split(p, c) if p }}|{{ x.rsplit(p, c) if p }}|{{ x.partition(p) if p }}|{{ x.rpartition(p) if p }}|"
        "{{ x.removeprefix(p) }}|{{ x.removesuffix(p) }}|{{ x.splitlines(true) }}|{{ x.count(p, c, 4) }}|{{ x.rfind(p, 0, c) }}"
    )
    compare(template, {"x": text, "p": part, "r": fresh, "c": count})


@EXAMPLES
@given(st.text("aAbBéÉßǆǅﬁΣσςάŉİıΐ'. \u0301-(1", max_size=8))
def test_case(text):
    compare("{{ x|lower }}|{{ x|upper }}|{{ x is lower }}|{{ x is upper }}|{{ x|title }}", {"x": text})


@EXAMPLES
@given(st.text("%sdrxfge{}0123.+-# ()k*c:!<>^=\\n", max_size=10), st.sampled_from(["s", "i", "f", "d", "l", "b", "n", "u"]))
def test_formats(text, name):
    compare("{{ x|format(" + name + ") }}", {**VARIABLES, "x": text}, lenient=True)
    compare("{{ x.format(" + name + ", k=3) }}", {**VARIABLES, "x": text}, lenient=True)
    compare("{{ x % " + name + " }}", {**VARIABLES, "x": text}, lenient=True)


spec = st.tuples(
    st.sampled_from(["", "-", "0", "+", " ", "#", "-+", "0+", "#0"]), st.sampled_from(["", "1", "7", "12"]),
    st.sampled_from(["", ".0", ".2", ".5"]), st.sampled_from("sdrxXofeg%cu"),
).map("".join)  # fmt: skip


@EXAMPLES
@given(spec, numbers | st.text("aé", max_size=3), st.text("<>^=x", max_size=2))
def test_format_specifications(form, value, align):
    compare("{{ ('[%" + form + "]') % x }}", {"x": value}, lenient=True)
    compare("{{ ('[{:" + align + form.replace("-", "") + "}]').format(x) }}", {"x": value}, lenient=True)


# ---- values through JSON ----

keys = st.text(characters.filter(lambda x: x != "\0"), max_size=3)  # which jansson refuses in keys
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@EXAMPLES
@given(values, values)
def test_values(x, y):
    template = (
        "{{ x }}|{{ x|tojson }}|{{ x|tojson(indent=2) }}|{{ x|tojson(indent='\t', ensure_ascii=true) }}|{{ x == y }}|{{ [x] == [x] }}|"
        "{{ x in [y, x] }}|{{ 1 if x else 0 }}|{{ x is mapping }}{{ x is sequence }}{{ x is iterable }}|{{ x|string }}|{{ {'a': x} }}|"
        "{{ x|safe }}|{{ x|e }}|{{ (x, y) }}|{{ x ~ y }}"
    )
    compare(template, {"x": x, "y": y})


@EXAMPLES
@given(st.lists(values, max_size=5), st.booleans())
def test_order(items, reverse):
    compare("{{ x|sort(reverse=r) }}", {"x": items, "r": reverse})
    compare("{{ x|unique|list }} {{ x|min }} {{ x|max }}", {"x": items, "r": reverse})


@EXAMPLES
@given(st.lists(st.text("aAbB", max_size=2), max_size=8), st.dictionaries(st.text("aAbB", max_size=2), st.integers(0, 3), max_size=9))
def test_sorting(items, mapping):
    compare(
        "{{ x|sort }}{{ x|sort(case_sensitive=true) }}{{ x|sort(reverse=true) }}{{ x|unique|list }}{{ d|dictsort }}"
        "{{ d|dictsort(by='value', reverse=true) }}{{ d|tojson(sort_keys=true) }}{{ x|min }}{{ x|max }}{{ d == d }}{{ 'a' in d }}",
        {"x": items, "d": mapping},
    )
