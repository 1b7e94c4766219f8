#include "grammar/schema_formats.h"

#include <utility>

namespace skein::grammar {
namespace {

// Every day that there is, from the year 1 on; 29 February only in leap years.
#define SKEIN_YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define SKEIN_LEAP_YEAR                                                                        \
  "(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|0[1-9](?:0[48]|[2468][048]|[13579][26])|00(?:" \
  "0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define SKEIN_DATE                                                                      \
  "(?:" SKEIN_YEAR                                                                      \
  "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
  "|02-(?:0[1-9]|1\\d|2[0-8]))|" SKEIN_LEAP_YEAR "-02-29)"
#define SKEIN_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:[zZ]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define SKEIN_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define SKEIN_IPV4 SKEIN_OCTET "\\." SKEIN_OCTET "\\." SKEIN_OCTET "\\." SKEIN_OCTET
#define SKEIN_H16 "[0-9a-fA-F]{1,4}"
#define SKEIN_LS32 "(?:" SKEIN_H16 ":" SKEIN_H16 "|" SKEIN_IPV4 ")"
#define SKEIN_IPV6                                                                                \
  "(?:(?:" SKEIN_H16 ":){6}" SKEIN_LS32 "|::(?:" SKEIN_H16 ":){5}" SKEIN_LS32 "|(?:" SKEIN_H16    \
  ")?::(?:" SKEIN_H16 ":){4}" SKEIN_LS32 "|(?:(?:" SKEIN_H16 ":){0,1}" SKEIN_H16                  \
  ")?::(?:" SKEIN_H16 ":){3}" SKEIN_LS32 "|(?:(?:" SKEIN_H16 ":){0,2}" SKEIN_H16                  \
  ")?::(?:" SKEIN_H16 ":){2}" SKEIN_LS32 "|(?:(?:" SKEIN_H16 ":){0,3}" SKEIN_H16 ")?::" SKEIN_H16 \
  ":" SKEIN_LS32 "|(?:(?:" SKEIN_H16 ":){0,4}" SKEIN_H16 ")?::" SKEIN_LS32 "|(?:(?:" SKEIN_H16    \
  ":){0,5}" SKEIN_H16 ")?::" SKEIN_H16 "|(?:(?:" SKEIN_H16 ":){0,6}" SKEIN_H16 ")?::)"
// At most 6 labels of 40 characters, which keeps a name within 253 without a second counter.
#define SKEIN_LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,38}[a-zA-Z0-9])?"
#define SKEIN_HOST SKEIN_LABEL "(?:\\." SKEIN_LABEL "){0,5}"
#define SKEIN_PCT "%[0-9a-fA-F]{2}"
#define SKEIN_PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" SKEIN_PCT ")"
#define SKEIN_TAIL "(?:\\?(?:" SKEIN_PCHAR "|[/?])*)?(?:#(?:" SKEIN_PCHAR "|[/?])*)?"
#define SKEIN_AUTHORITY                                                   \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" SKEIN_PCT ")*@)?(?:\\[" SKEIN_IPV6 \
  "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" SKEIN_PCT ")*)(?::\\d{0,5})?"
#define SKEIN_PATH "(?:/" SKEIN_PCHAR "*)*"

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", "^" SKEIN_DATE "$"},
    {"time", "^" SKEIN_TIME "$"},
    {"date-time", "^" SKEIN_DATE "[tT]" SKEIN_TIME "$"},
    {"duration",
     "^P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)(?:"
     "T"
     "(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))?|T(?:\\d{1,9}H(?"
     ":"
     "\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))$"},
    {"email",
     "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" SKEIN_HOST "$"},
    {"hostname", "^" SKEIN_HOST "$"},
    {"ipv4", "^" SKEIN_IPV4 "$"},
    {"ipv6", "^" SKEIN_IPV6 "$"},
    {"uuid", "^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(?://" SKEIN_AUTHORITY SKEIN_PATH "|/(?:" SKEIN_PCHAR
            "+" SKEIN_PATH ")?|" SKEIN_PCHAR "+" SKEIN_PATH "|)" SKEIN_TAIL "$"},
    {"uri-reference",
     "^(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://" SKEIN_AUTHORITY SKEIN_PATH "|/(?:" SKEIN_PCHAR
     "+" SKEIN_PATH ")?|(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" SKEIN_PCT ")+" SKEIN_PATH "|)" SKEIN_TAIL
     "$"},
    {"iri", "^[A-Za-z][A-Za-z0-9+.-]*:(?://(?:[^\\x00-\\x20\"<>\\\\^`{|}%]|" SKEIN_PCT
            ")*|(?:[^\\x00-\\x20\"<>"
            "\\\\^`{|}%/]|" SKEIN_PCT ")(?:[^\\x00-\\x20\"<>\\\\^`{|}%]|" SKEIN_PCT ")*)$"},
    {"json-pointer", "^(?:/(?:[^~/]|~[01])*)*$"},
    // Not every regular expression, but nothing that is none.
    {"regex",
     "^\\^?(?:(?:[^\\\\()\\[\\]{}*+?|^$]|\\\\[dDwWsSnrt.*+?()\\[\\]{}|^$/"
     "\\\\-]|\\[\\^?(?:[A-Za-z0-9_ "
     ".,:;@#%&=!<>]|a-z|A-Z|0-9|\\\\[dws.-])+\\]|\\((?:\\?:)?(?:[^\\\\()\\[\\]{}*+?|^$]|\\\\["
     "dDwWsS."
     "])+(?:\\|(?:[^\\\\()\\[\\]{}*+?|^$]|\\\\[dDwWsS.])+)*\\))(?:[*+?]|\\{\\d{1,3}\\}|\\{\\d{1,2},"
     "\\})"
     "?)*\\$?$"},
};

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return {};
}

}  // namespace skein::grammar
