"""Templates in our own words, one or a few per construct, with the conversation and the variables that they are tried with."""

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Which <b>colour</b> has the sky?"},
    {"role": "assistant", "content": "Blue 🙂", "reasoning_content": "It is day."},
    {"role": "user", "content": [{"type": "text", "text": "And at "}, {"type": "text", "text": "night?"}]},
]
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "names": ["b", "a", "c"], "empty": [], "deep": {"a": {"b": [1, {"c": "x"}]}}}

# What a template says, by what it shows.
CASES = {
    # texts and white space
    "text": "plain text, { braces } and % signs\n",
    "newlines": "a\r\nb\rc\n\n",
    "one newline at the end is dropped": "a\n",
    "trim_blocks": "a\n{% if true %}\nb\n{% endif %}\nc\n{# comment #}\nd\n",
    "lstrip_blocks": "  {% if true %}x{% endif %}\n\t {% if true %}  y\n  {% endif %}\n  {{ 1 }}\n  {# c #} z\n",
    "lstrip beside text": "a  {% if true %}b  {% endif %}  c",
    "minus": "a \n {%- if true -%} \n b \u3000\n {%- endif -%} \n c {{- 1 -}} \n d {#- c -#} \n e",
    "plus": "  {%+ if true %}\n x\n {%+ endif +%}\n y {#+ c +#}\n z",
    "minus at variables alone": "a {{- '' }} b {{ '' -}} c",
    "raw": "a {% raw %}{{ x }} {% if %} {# c #}{% endraw %} b\n{%- raw -%}  y {%- endraw -%}  z",
    "raw with signs": "  {% raw %}\n  q\n  {% endraw %}\nr",
    "comment ends first": "a{# x {{ y }} {% z #}b{#-#}c{# - #} d{#- -#}",
    "no space in tags": "{%if true%}a{%elif b%}b{%endif%}{{1}}",
    "tags over lines": "{%\nif true\n%}a{{\n1\n+\n2\n}}{% endif %}",
    "braces close dicts": "{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}.a.b}}",
    "unicode": "é 日本 🙂 \u2028 {{ 'ü' }}",
    # literals
    "strings": r"""{{ 'a"b' }}{{ "a'b" }}{{ 'a\'b' }}{{ "\n\t\\\x41\u00e9\U0001f600\101\q\/" }}{{ 'a' "b" 'c' }}{{ '\é\🙂' }}""",
    "numbers": "{{ 1 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_0.0_1 }} {{ 00 }}",
    "collections": "{{ [1, 'a', [2,],] }}{{ (1,) }}{{ () }}{{ (1, 2) }}{{ {'a': 1, 2: none, none: true, 1.5: 'x'} }}{{ {} }}{{ [] }}",
    "constants": "{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}{{ 1, 2 }}",
    # operators
    "arithmetic": "{{ 7 / 2 }} {{ 8 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}",
    "real arithmetic": "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1.0 }} {{ 1e-4 }} {{ 1e-5 }} {{ 3.0 * 2 }}",
    "signs": "{{ -1 }} {{ +1 }} {{ - -1 }} {{ -2 ** 2 }} {{ -true }} {{ 1 - -1 }} {{ -1|abs }}",
    "texts": "{{ 'a' + 'b' }}{{ 'ab' * 3 }}{{ 2 * 'x' }}{{ 'x' * -1 }}{{ 'a' ~ 1 ~ none ~ [1] ~ u }}{{ [1] * 2 }}{{ (1,) + (2,) }}{{ [1] + [2] }}",
    "percent": "{{ '%s is %d, %5.2f%% %x %-5s| %05d %r %c' % ('it', 7, 2.5, 255, 'ab', 42, 'q', 'z') }}{{ '%(a)s' % {'a': 1} }}{{ 'x' % [] }}",
    "comparisons": "{{ 1 == 1.0 }}{{ 1 == true }}{{ '1' == 1 }}{{ [1, 2] == [1, 2] }}{{ (1,) == [1] }}{{ {'a': 1} == {'a': 1.0} }}{{ none == none }}",
    "order": "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' < 'b' }}{{ 'Z' < 'a' }}{{ [1, 2] < [1, 3] }}{{ (1, 2) <= (1, 2) }}{{ 2.5 > 2 }}{{ 'é' > 'z' }}",
    "in": "{{ 'a' in 'abc' }}{{ 1 in [1, 2] }}{{ 'k' in {'k': 1} }}{{ 'x' not in 'abc' }}{{ '' in 'a' }}{{ 1 in (true,) }}{{ 'x' in u }}",
    "logic": "{{ 1 and 2 }}{{ 0 and x.y }}{{ '' or 'd' }}{{ not '' }}{{ not not 1 }}{{ 1 or u.x }}{{ none or u }}{{ not 1 == 2 }}",
    "condition": "{{ 'a' if true else 'b' }}{{ 'a' if false }}{{ 'a' if false else 'b' if false else 'c' }}{{ ('a' if false) is defined }}",
    # items
    "subscripts": "{{ names[0] }}{{ names[-1] }}{{ names.1 }}{{ names[9] }}{{ deep.a.b[1].c }}{{ deep['a']['b'][0] }}{{ 'abc'[1] }}{{ 'abc'[-1] }}",
    "slices": "{{ names[1:] }}{{ names[:-1] }}{{ names[::-1] }}{{ names[::2] }}{{ '日本語'[1:] }}{{ 'abc'[5:] }}{{ (1, 2, 3)[0:2] }}{{ names[-2:-1] }}",
    "attributes before items": "{% set d = {'items': 1, 'get': 2, 'a b': 3} %}{{ d['items'] }}{{ d.get('get') }}{{ d['a b'] }}{{ 1 if d.items }}{{ d.x is defined }}",
    "items before attributes": "{% set d = {'keys': 1} %}{{ d['keys'] }}{{ 1 if d['values'] }}{{ d['values']()|list }}{{ 'x'['upper']() }}{{ d['y'] is defined }}",
    "nothing": "{{ u }}{{ u is defined }}{{ none.x is defined }}{{ 1['a'] is defined }}{{ [u] }}{{ u|length }}{{ u|list }}{{ u == v }}{{ u == none }}",
    # statements
    "if": "{% if empty %}a{% elif names %}b{% else %}c{% endif %}{% if not names %}d{% else %}e{% endif %}{% if 1, %}f{% endif %}",
    "for": "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ m.role }}{{ ',' if not loop.last }}\n{% endfor %}",
    "loop": "{% for x in names %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}"
    "{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.changed(x) }}{{ loop.depth }};{% endfor %}",
    "for else": "{% for x in empty %}x{% else %}none{% endfor %}{% for x in names %}{{ x }}{% else %}none{% endfor %}",
    "for if": "{% for x in names if x != 'a' %}{{ loop.index }}{{ x }}{{ loop.last }}{% else %}none{% endfor %}{% for x in names if x == 'z' %}x{% else %}none{% endfor %}",
    "for if length": "{% for x in names if x != 'a' %}{{ loop.length }}{{ loop.revindex }}{% endfor %}",
    "for over": "{% for c in 'añ🙂' %}{{ c }},{% endfor %}{% for k in deep %}{{ k }}{% endfor %}{% for k, v in deep.items() %}{{ k }}={{ v }}{% endfor %}"
    "{% for x in u %}x{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}{% for x in range(3) %}{{ x }}{% endfor %}",
    "break and continue": "{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x > 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "else after break": "{% for x in [1] %}{% break %}{% else %}e{% endfor %}{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}f{% endfor %}",
    "nested loops": "{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.index }}{{ a }}{{ b }}{% if b == 'x' %}{% continue %}{% endif %}{% endfor %}{{ loop.index }};{% endfor %}",
    "set": "{% set x = 1 %}{{ x }}{% set x, y = 2, 3 %}{{ x }}{{ y }}{% set z = 1, 2 %}{{ z }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "set in loops": "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "namespace": "{% set ns = namespace(x=0, y='a') %}{% for i in [1, 2, 3] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns['y'] }}{{ ns.z is defined }}{{ ns }}"
    "{% set ns.a, ns.b = 1, 2 %}{{ ns.a + ns.b }}{{ namespace({'k': 1}, j=2).k }}",
    "set block": "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{% set y | upper | replace('A', 'z') %}a{% set q = 1 %}b{% endset %}{{ y }}{{ q is defined }}",
    "macro": "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c='x') }}{{ f() }}{{ f(b=1, a=2)|length }}{{ f }}",
    "macro arguments": "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}{{ f(*[1, 2], **{'k': 'v'}) }}{{ f(a=5) }}",
    "macro scope": "{% set x = 1 %}{% macro f() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}{% set x = 2 %}{{ f() }}{% for x in [7] %}{{ f() }}{% endfor %}",
    "recursion": "{% macro f(n) %}{{ n }}{% if n > 0 %}({{ f(n - 1) }}){% endif %}{% endmacro %}{{ f(3) }}",
    "macro in a loop": "{% for i in [1, 2] %}{% macro f() %}{{ i }}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}",
    "call": "{% macro f(n) %}[{{ caller() if caller else 'none' }}{{ n }}]{% endmacro %}{% call f(1) %}x{% endcall %}{{ f(2) }}"
    "{% macro g() %}{% for i in [1, 2] %}{{ caller(i, y=3) }}{% endfor %}{% endmacro %}{% call(a, y=0, z='d') g() %}{{ a }}{{ y }}{{ z }};{% endcall %}",
    "filter block": "{% filter upper|replace('B', 'x') %}ab{% set q = 1 %}{{ 'c' }}{% endfilter %}{{ q is defined }}",
    "with": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 1 %}{% endwith %}{{ a }}{{ c is defined }}{% with %}x{% endwith %}",
    "generation": "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.role }}{% set q = 1 %}!{% endgeneration %}{{ q is defined }}{% endfor %}",
    "colon": "{% if true: %}a{% endif %}{% for x in [1]: %}b{% endfor %}",
    # filters, tests, methods, functions
    "tojson": "{{ messages|tojson }}{{ deep|tojson(indent=2) }}{{ [1.0, 1e20, none, true, '\u2028<é\"\\\\\\n\\x7f']|tojson }}{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}"
    "{{ 'é🙂'|tojson(ensure_ascii=true) }}{{ []|tojson(indent=1) }}{{ {'b': 1, 'a': [{}]}|tojson(indent=0, sort_keys=true) }}{{ (1, 2)|tojson(separators=(',', ':')) }}",
    "printed lists": "{{ messages[3].content }}{{ ['it\\'s', \"q\\\"\", 'b\\'\\\"', 'a\\n\\t\\\\\\x00\\x7f\\u200b', 'é🙂\\u3000'] }}{{ [1.5, true, none, (1,), {'a': []}] }}",
    "selecting": "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|rejectattr('role', 'eq', 'user')|map(attribute='role')|join(',') }}"
    "{{ names|select('in', ['a', 'b'])|list }}{{ names|reject('equalto', 'a')|list }}{{ [0, 1]|select|list }}{{ messages|map(attribute='content.0.text')|list }}",
    "mapping": "{{ names|map('upper')|join }}{{ [{'a': 1}, {}]|map(attribute='a', default=0)|list }}{{ ['1', 'x']|map('int', 9)|list }}{{ none|map('upper')|list }}",
    "sorting": "{{ names|sort }}{{ ['B', 'a', 'A', 'b']|sort }}{{ ['B', 'a']|sort(case_sensitive=true) }}{{ names|sort(reverse=true) }}{{ {'b': 1, 'A': 2}|dictsort }}"
    "{{ [{'k': 2, 'n': 'x'}, {'k': 1, 'n': 'y'}]|sort(attribute='k,n')|map(attribute='n')|join }}{{ ['a', 'A', 'b']|unique|list }}{{ [3, 1]|min }}{{ names|max }}",
    "numbers from text": "{{ '42'|int }}{{ '4.9'|int }}{{ 'x'|int }}{{ 'x'|int(7) }}{{ ' -3 '|int }}{{ '0x1f'|int(0, 16) }}{{ '1.5'|float }}{{ none|int }}{{ 3.9|int }}{{ true|int }}",
    "defaults": "{{ u|default('d') }}{{ ''|default('d') }}{{ ''|default('d', true) }}{{ none|default('d') }}{{ none|d('d', boolean=true) }}{{ u|default }}",
    "texts by filters": "{{ ' a '|trim }}|{{ 'xax'|trim('x') }}|{{ 'aXb'|lower }}|{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'aab'|replace('a', 'x', 1) }}|{{ [1, 2]|join('-') }}"
    "|{{ 'abc'|first }}{{ 'abc'|last }}{{ 'abc'|reverse }}{{ 'abc'|list }}|{{ 'a b-c'|title }}|{{ 'aB'|capitalize }}|{{ '%s-%s'|format(1, 'x') }}|{{ none|string ~ 1|string }}",
    "safe": "{{ '<a>'|safe + '<b>' }}{{ '<b>' + '<a>'|safe }}{{ ('<a>'|safe) ~ '<b>' }}{{ '<a>'|e }}{{ ('%s<'|safe) % '<' }}{{ '<'|safe|upper + '&' }}{{ ['<'|safe] }}{{ ('<'|safe).replace('<', '>') }}",
    "tests": "{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1.0 is float }}{{ 'a' is string }}{{ [] is sequence }}{{ {} is mapping }}{{ {} is iterable }}{{ none is none }}"
    "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ u is undefined }}{{ false is false }}{{ 1 is true }}{{ 'A' is upper }}{{ 1 is in [1] }}{{ 1 is not none }}{{ 2 is eq 2 and 1 is lt 2 }}{{ 'upper' is filter }}",
    "methods": "{{ ' a '.strip() }}|{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('c') }}|{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b '.split() }}{{ 'a\nb'.splitlines() }}"
    "|{{ 'aXa'.replace('a', 'b') }}{{ '-'.join(['a', 'b']) }}{{ 'abc'.find('c') }}{{ 'aa'.count('a') }}{{ '{} {x} {0}'.format(1, x=2) if false else '{} {x}'.format(1, x=2) }}|{{ 'aB'.upper() }}{{ 'aB'.lower() }}"
    "|{{ 'xxax'.lstrip('x') }}{{ 'xxax'.rstrip('x') }}{{ deep.get('a', 1) == deep.a }}{{ deep.get('z') }}{{ deep.get('z', 'd') }}{{ deep.keys()|list }}{{ deep.values()|list }}{{ deep.items() }}",
    "functions": "{{ range(3)|list }}{{ range(5, 1, -2)|list }}{{ range(2) }}{{ dict(a=1, b='x') }}{{ dict([('a', 1)]) }}{{ range(3)[1] }}{{ range(5)[1:3]|list }}{{ range is callable }}",
    "date": "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %f%z %% é') }}|{{ strftime_now('') }}|{% if strftime_now is defined %}yes{% endif %}",
    # what is made of messages
    "roles": "{% for m in messages %}{{ m.role }}:{{ m.content if m.content is string else m.content|map(attribute='text')|join }}\n{% endfor %}{% if add_generation_prompt %}go{% endif %}",
    "reasoning": "{% for m in messages %}{{ m.thinking }}/{{ m.reasoning_content }}/{{ m.reasoning }};{% endfor %}{{ messages[2] }}",
    "absent": "{{ tools is none }}{{ documents is none }}{{ tools is defined }}{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}",
}
