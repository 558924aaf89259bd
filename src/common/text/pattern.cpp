#include "common/text/pattern.hpp"

namespace rawduck {

bool MatchesPattern(const std::vector<std::string> &name, const std::vector<std::string> &pattern,
                    ComponentMatcher matches) {
    // Greedy with one point to return to, the latest "**": giving an earlier one more could not match more.
    size_t n = 0, p = 0;
    size_t retry_pattern = std::string::npos, retry_name = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == "**") {
            retry_pattern = ++p;
            retry_name = n;
        } else if (p < pattern.size() && matches(name[n], pattern[p])) {
            n++;
            p++;
        } else if (retry_pattern != std::string::npos) {
            n = ++retry_name;
            p = retry_pattern;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == "**") {
        p++;
    }
    return p == pattern.size();
}

} // namespace rawduck
