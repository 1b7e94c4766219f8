// What two kinds of databases spell differently. A driver has one of these; all other SQL of the
// store is written once, in what they have in common: $1 for parameters, RETURNING, ON CONFLICT.
#pragma once

#include <span>
#include <string>

namespace skein {

struct SqlDialect {
  // The steps that lead from an empty database to today's. A step is never edited once it is
  // released; what changes is added as a new one.
  std::span<const char* const> schema;
  std::string version;      // a query: how many of those steps the database has been through
  std::string set_version;  // the number follows
  std::string begin;        // of a transaction that reads what it will change
  // Behind the choice of lines to claim: passes over those that another server is claiming just
  // now.
  std::string skip_locked;
  // Whether a text is in the list that a parameter holds as a JSON array; {} is the parameter.
  std::string one_of;
};

}  // namespace skein
