#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace skein {
namespace {

using Json = nlohmann::ordered_json;

Result<jinja::Rendered> render(std::string_view source, const Json& context = Json::object(),
                               const jinja::RenderOptions& options = {}) {
  SKEIN_ASSIGN(const jinja::Template parsed, jinja::Template::parse(source));
  return parsed.render(context, options);
}

// Pieces as text: [template]{data}.
std::string marks(std::string_view source, const Json& context,
                  const jinja::RenderOptions& options = {}) {
  const Result<jinja::Rendered> rendered = render(source, context, options);
  if (!rendered.ok()) return "error: " + rendered.message();
  std::string out;
  for (const jinja::Piece& piece : rendered->pieces) {
    out += piece.from_template ? "[" + piece.text + "]" : "{" + piece.text + "}";
  }
  return out;
}

const Json kContext = Json::parse(R"({"user": "<|x|>", "n": 5, "list": ["a", "b"],
    "d": {"key": "value"}, "messages": [{"role": "user", "content": "hi"}]})");

TEST(MarkedText, KeepsMarksThroughSlices) {
  jinja::MarkedText text("abc", true);
  text.append("DEF", false);
  text.append("ghi", true);
  text.append("", false);
  text.append("jk", true);
  EXPECT_EQ(text.bytes(), "abcDEFghijk");
  EXPECT_FALSE(text.from_template());
  EXPECT_TRUE(text.slice(2, 3).from_template());
  EXPECT_FALSE(text.slice(3, 4).from_template());
  EXPECT_TRUE(text.slice(6, 7).from_template());
  const jinja::MarkedText middle = text.slice(4, 8);
  EXPECT_EQ(middle.bytes(), "EFgh");
  EXPECT_FALSE(middle.slice(1, 2).from_template());
  EXPECT_TRUE(middle.slice(2, 3).from_template());
  EXPECT_TRUE(text.slice(6, 11).from_template());
  EXPECT_TRUE(text.slice(3, 3).from_template());
}

TEST(JinjaMarks, LiteralsAreTheTemplatesAndVariablesAreData) {
  EXPECT_EQ(marks("<s>{{ user }}</s>", kContext), "[<s>]{<|x|>}[</s>]");
  EXPECT_EQ(marks("{{ '<|' ~ user ~ '|>' }}", kContext), "[<|]{<|x|>}[|>]");
  EXPECT_EQ(marks("{{ '<|' + user + '|>' }}", kContext), "[<|]{<|x|>}[|>]");
  EXPECT_EQ(marks("{% set a %}x{{ user }}y{% endset %}{{ a * 2 }}", kContext),
            "[x]{<|x|>}[yx]{<|x|>}[y]");
  EXPECT_EQ(marks("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(user) }}{{ m('t') }}", kContext),
            "[<]{<|x|>}[><t>]");
  EXPECT_EQ(marks("{{ n }}{{ n + 1 }}{{ list|length }}", kContext), "{56}[2]");
  EXPECT_EQ(marks("{% for x in list %}<i{{ loop.index }}>{{ x }}{% endfor %}", kContext),
            "[<i1>]{a}[<i2>]{b}");
  EXPECT_EQ(marks("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", kContext),
            "{key}[=]{value}");
}

TEST(JinjaMarks, FiltersAndMethodsKeepThem) {
  EXPECT_EQ(marks("{{ ('  A' ~ user ~ 'b ')|trim|upper }}", kContext), "[A]{<|X|>}[B]");
  EXPECT_EQ(marks("{{ ('a' ~ user).replace('a', '<b>') }}", kContext), "[<b>]{<|x|>}");
  EXPECT_EQ(marks("{{ 'axa'.replace('x', user) }}", kContext), "[a]{<|x|>}[a]");
  EXPECT_EQ(marks("{{ (user ~ ',t').split(',')|join('|') }}", kContext), "{<|x|>}[|t]");
  EXPECT_EQ(marks("{{ ('ab' ~ user)[::-1] }}", kContext), "{>|x|<}[ba]");
  EXPECT_EQ(marks("{{ '%s|%s' % (user, 'lit') }}", kContext), "{<|x|>}[|lit]");
  EXPECT_EQ(marks("{{ '{}|{}'.format('lit', user) }}", kContext), "[lit|]{<|x|>}");
  EXPECT_EQ(marks("{{ ('t\n' ~ user)|indent(2) }}", kContext), "[t]{\n}[  ]{<|x|>}");
  EXPECT_EQ(marks("{{ {'a': 'b'}|tojson }}{{ d|tojson }}{{ [user] }}", kContext),
            "[{\"a\": \"b\"}]{{\"key\": \"value\"}['<|x|>']}");
  EXPECT_EQ(marks("{{ user|int }}{{ '5'|int }}", kContext), "[05]");
  EXPECT_EQ(marks("{{ [user, 't']|map('upper')|join }}", kContext), "{<|X|>}[T]");
}

TEST(JinjaMarks, OptionsTrustTokensAndRoles) {
  jinja::RenderOptions options;
  options.template_variables = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  options.template_roles = {"user"};
  EXPECT_EQ(marks("{{ bos_token }}{{ user }}", kContext, options), "[<s>]{<|x|>}");
  EXPECT_EQ(marks("{{ bos_token }}", {{"bos_token", "<s>"}}, options), "[<s>]");
  EXPECT_EQ(marks("{{ bos_token }}", {{"bos_token", "<evil>"}}, options), "{<evil>}");
  EXPECT_EQ(marks("{{ x.bos_token }}", {{"x", {{"bos_token", "<s>"}}}}, options), "{<s>}");
  EXPECT_EQ(marks("<|{{ messages[0].role }}|>", kContext, options), "[<|user|>]");
  EXPECT_EQ(marks("<|{{ m.role }}|>", {{"m", {{"role", "im_end"}}}}, options), "[<|]{im_end}[|>]");
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_EQ(render("a\n\n{{ x.y }}").message(), "line 3: 'x' is undefined");
  EXPECT_EQ(render("\n{% if 1 %}\n{% endfor %}").message(), "line 3: unknown tag 'endfor'");
  EXPECT_EQ(render("\n{{ raise_exception('roles must alternate') }}").message(),
            "line 2: roles must alternate");
  EXPECT_EQ(render("{{ 9223372036854775807 + 1 }}").message(),
            "line 1: integer overflow: the result of + does not fit 64 bits");
  EXPECT_EQ(render("{{ 9223372036854775808 }}").message(),
            "line 1: number 9223372036854775808 is out of range");
  EXPECT_EQ(render("\n\xff").message(), "line 1: the template is not valid UTF-8");
  EXPECT_FALSE(render("x", Json::array()).ok());
  EXPECT_FALSE(render("{{ x }}", {{"x", UINT64_MAX}}).ok());
}

TEST(Jinja, SandboxKeepsTheContext) {
  for (const char* source :
       {"{{ list.append(1) }}", "{{ list.extend([1]) }}", "{{ d.update({}) }}",
        "{{ d.pop('key') }}", "{{ d.clear() }}", "{{ d.setdefault('a', 1) }}", "{{ list.sort() }}",
        "{{ ''.__class__.__mro__ }}", "{{ d.__class__() }}"}) {
    EXPECT_EQ(render(source, kContext).message().find("line 1: access to attribute"), 0u) << source;
  }
}

TEST(Jinja, TimeIsTheCallers) {
  EXPECT_FALSE(render("{{ strftime_now('%Y') }}").ok());
  EXPECT_EQ(render("{{ strftime_now is defined }}")->text(), "False");
  jinja::RenderOptions options;
  options.now = std::tm{};
  options.now->tm_year = 126;
  EXPECT_EQ(render("{{ strftime_now('%Y') }}", Json::object(), options)->text(), "2026");
}

TEST(Jinja, InvalidTextInTheContextIsReplaced) {
  EXPECT_EQ(render("{{ x }}", {{"x", "a\xff\xc3"}})->text(), "a\xef\xbf\xbd\xef\xbf\xbd");
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

// Each of these would take for ever, or all the memory, without its limit.
TEST(JinjaLimits, HostileTemplatesEnd) {
  const std::string doubling =
      "{% set ns = namespace(s='x') %}{% for i in range(100000) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
  const std::string many_sets =
      repeated("{% set a = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 9 %}", 1 << 20);
  const std::string cases[] = {
      repeated("(", 1 << 20),
      "{{ " + repeated("(", 1 << 20),
      "{{ " + repeated("[", 1 << 20),
      "{{ " + repeated("not ", 1 << 20) + "1 }}",
      "{{ " + repeated("-", 1 << 20) + "1 }}",
      "{{ 1" + repeated("+1", 1 << 20) + " }}",
      "{{ x" + repeated("|upper", 1 << 20) + " }}",
      "{{ x" + repeated(".a", 1 << 20) + " }}",
      "{{ " + repeated("1 if 1 else ", 1 << 20) + "1 }}",
      repeated("{% if 1 %}", 1 << 20),
      repeated("{% for x in [1] %}", 1 << 20),
      repeated("{% raw %}", 1 << 20),
      repeated("{#", 1 << 20),
      doubling,
      "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ 'x' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{{ '%99999999999s' % 1 }}",
      "{{ 'x'.center(99999999999) }}",
      "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
      "{{ ('x' * 1000000)|list|length }}{{ ('x' * 100000000)|list|length }}",
      "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(1000) %}"
      "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{% set ms = namespace(l=[1]) %}{% for i in range(40) %}"
      "{% set ms.l = [ms.l, ms.l] %}{% endfor %}{{ ns.l == ms.l }}",
      "{% set ns = namespace() %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{{ ns.l }}",
      "{% set h = namespace(c=namespace()) %}{% for i in range(100000) %}{% set n = namespace() %}"
      "{% set c = h.c %}{% set c.x = n %}{% set h.c = n %}{% endfor %}{{ 1 // 0 }}",
      "{{ 'a'|" + repeated("map('map',", 2) + "'map'" + repeated(",'map'", 1 << 19) + ") }}",
      "{{ ('a' * 1000000).split('a')|length }}{{ ('ab' * 4000000).find('ab' * 2000000 ~ 'c') }}"
      "{% for i in range(100000) %}{% set x = ('ab' * 4000000).rfind('c' ~ 'ab' * 2000000) %}"
      "{% endfor %}",
      many_sets + "{% for i in range(100000) %}" + many_sets + "{% endfor %}",
      "{% for i in range(100000) %}" + repeated("xxxxxxxxxxxxxxxx", 1 << 18) + "{% endfor %}",
  };
  for (const std::string& source : cases) {
    const auto begin = std::clock();
    const Result<jinja::Rendered> result = render(source, {{"x", "y"}});
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const std::string shown = source.substr(0, 100);
    EXPECT_EQ(result.ok(), shown[0] != '{') << shown;
    EXPECT_LT(seconds, 5.0) << shown;
  }
}

// Steps must be worth about the same time, whatever they are spent on: each of these did thousands
// of times the work that it was charged for.
TEST(JinjaLimits, StepsBoundTheWork) {
  std::string variables = "{% set a = 0 %}";
  for (int i = 0; i < 20'000; ++i) variables += "{% set v" + std::to_string(i) + " = 0 %}";
  const std::string big = "{% set b = 'ab' * 4000000 %}{% set c = 'x' ~ b %}";
  const std::string dict = "{% set d = dict(" + [] {
    std::string items;
    for (int i = 0; i < 20'000; ++i) items += "k" + std::to_string(i) + "=1,";
    return items;
  }() + ") %}";
  const auto many = [](const std::string& body) {
    return "{% for i in range(100000) %}" + body + "{% endfor %}";
  };
  const std::string name(1 << 16, 'n');
  std::string parameters = "p=0";
  for (int i = 0; i < 2'000; ++i) parameters += ",p" + std::to_string(i) + "=0";
  const std::string cases[] = {
      variables + many("{% set x = v19999 %}"),
      variables + many(repeated("{% if v19999 %}{% endif %}", 1 << 16)),
      big + many("{% set x = b.removesuffix(c) %}{% set x = c.removeprefix(b) %}"),
      big + many("{% set x = 'a'.rfind(b) %}"),
      big + many("{% set x = []|join(b) %}"),
      big + many("{% set x = 'abcdef'|truncate(9000000, end=b) %}"),
      big + many("{% set x = []|tojson(separators=(b, c)) %}"),
      big + many("{% set x = b|int %}"),
      big + many("{% set x = b|float %}"),
      big + many("{% set x = b[::-1] %}"),
      dict + many("{% set x = d.items() %}"),
      dict + many("{% set x = d.values() %}"),
      dict + "{% macro m(" + parameters + ") %}{{ kwargs|length }}{% endmacro %}" +
          many("{% set x = m(**d) %}"),
      dict + many("{% set x = ('{k19999}' * 1000).format(**d) %}"),
      many("{% set x = " + name + " %}"),
      dict + many("{% set x = d." + name + " %}"),
  };
  for (const std::string& source : cases) {
    const auto begin = std::clock();
    const Result<jinja::Rendered> result = render(source);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const std::string shown = source.substr(source.find("range("), 100);
    EXPECT_TRUE(result.ok() || result.status().code() == Code::kResourceExhausted) << shown;
    EXPECT_LT(seconds, 5.0) << shown;
  }
}

// A text whose bytes are in turn the template's and the user's has a mark for each of them.
TEST(JinjaLimits, MarksCountAsMemory) {
  const Json context = {{"d", std::string(40'000, 'y')}};
  EXPECT_TRUE(render("{{ d|list|join('x')|length }}", context).ok());
  for (const char* source :
       {"{{ ((d|list|join('x')) * 300)|length }}", "{{ (d * 300).replace('y', 'y-')|length }}",
        "{% set ns = namespace(t=d|list|join('x')) %}{% for i in range(20) %}"
        "{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
        "{% for i in range(100000) %}{{ d|list|join('x') }}{% endfor %}",
        "{{ ('\\n' * 40000000).splitlines()|length }}"}) {
    EXPECT_EQ(render(source, context).status().code(), Code::kResourceExhausted) << source;
  }
  // What fits takes about what it is charged: 64 bytes a turn of the mark.
  jinja::RenderOptions options;
  options.limits.memory_bytes = 1'000'000;
  const std::string turns = "{{ d[:n]|list|join('x') }}";
  EXPECT_TRUE(render(turns, {{"d", context["d"]}, {"n", 1'000}}, options).ok());
  EXPECT_FALSE(render(turns, {{"d", context["d"]}, {"n", 10'000}}, options).ok());
}

// Names of keyword arguments that a ** brings from outside stay data.
TEST(Jinja, NamesFromOutsideStayData) {
  const Json context = {{"x", {{"<|im_start|>", 1}}}};
  for (const char* source :
       {"{{ dict(**x)|list|first }}", "{{ dict(**x) }}", "{{ dict(**x)|tojson }}",
        "{% macro m() %}{{ kwargs|list|first }}{% endmacro %}{{ m(**x) }}",
        "{% macro m() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}{{ m(**x) }}",
        "{% set n = namespace(**x) %}{{ n }}",
        "{% set ns = namespace({x|list|first: 'own'}) %}{{ ns }}"}) {
    const auto rendered = render(source, context);
    ASSERT_TRUE(rendered.ok()) << source << rendered.message();
    EXPECT_NE(rendered->text().find("<|im_start|>"), std::string::npos) << source;
    for (const jinja::Piece& piece : rendered->pieces) {
      if (piece.from_template) {
        EXPECT_EQ(piece.text.find("<|im_start|>"), std::string::npos) << source;
      }
    }
  }
  EXPECT_TRUE(render("{{ dict(own=1)|list|first }}")->pieces.at(0).from_template);
  // A mapping's names never reach the text of |format, only its values do.
  EXPECT_EQ(render("{{ '%(a)s'|format(**x) }}", {{"x", {{"a", "<s>"}}}})->pieces.size(), 1u);
  EXPECT_FALSE(
      render("{{ '%(a)s'|format(**x) }}", {{"x", {{"a", "<s>"}}}})->pieces.at(0).from_template);
}

TEST(JinjaLimits, EachIsAnError) {
  jinja::RenderOptions options;
  options.limits.steps = 1000;
  const std::string loop = "{% for i in range(1000) %}{{ i }}{% endfor %}";
  EXPECT_EQ(render(loop, Json::object(), options).status().code(), Code::kResourceExhausted);
  options.limits = {};
  options.limits.output_bytes = 10;
  EXPECT_TRUE(render("0123456789", Json::object(), options).ok());
  EXPECT_EQ(render("0123456789a", Json::object(), options).status().code(),
            Code::kResourceExhausted);
  options.limits = {};
  options.limits.memory_bytes = 1000;
  EXPECT_EQ(render("{{ 'x' * 1001 }}", Json::object(), options).status().code(),
            Code::kResourceExhausted);
  options.limits = {};
  int calls = 0;
  options.limits.expired = [&calls] { return ++calls > 3; };
  EXPECT_EQ(render("{% for i in range(100000) %}{{ i }}{% endfor %}", Json::object(), options)
                .status()
                .code(),
            Code::kDeadlineExceeded);
  EXPECT_EQ(calls, 4);
  EXPECT_FALSE(jinja::Template::parse(std::string(jinja::Template::kMaxSourceBytes + 1, 'x')).ok());
}

// The context is the caller's: it is not held against the template.
TEST(JinjaLimits, ContextDoesNotCount) {
  jinja::RenderOptions options;
  options.limits.memory_bytes = 100'000;
  options.limits.steps = 10'000;
  const Json context = {{"x", std::string(1'000'000, 'a')}};
  EXPECT_TRUE(render("{{ x|length }}", context, options).ok());
  EXPECT_FALSE(render("{{ (x ~ x)|length }}", context, options).ok());
}

}  // namespace
}  // namespace skein
