//! Patterns of file names with directories in them.
#pragma once

#include <string>
#include <vector>

namespace rawduck {

//! Whether `name` matches `pattern` component by component; "**" stands for any number of components. The
//! caller matches single components, with DuckDB's own function.
using ComponentMatcher = bool (*)(const std::string &component, const std::string &pattern);
bool MatchesPattern(const std::vector<std::string> &name, const std::vector<std::string> &pattern,
                    ComponentMatcher matches);

} // namespace rawduck
