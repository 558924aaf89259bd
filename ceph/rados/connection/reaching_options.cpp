#include "ceph/rados/connection/reaching_options.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

namespace rawduck_ceph {

namespace {

constexpr std::array<std::string_view, 7> REACHING_OPTIONS = {
    "mon_host",       "auth_cluster_required", "auth_service_required", "auth_client_required",
    "ms_client_mode", "ms_mon_client_mode",    "ms_bind_ipv6"};

constexpr const char *BLANKS = " \t\r";

std::string WithoutBlanks(const std::string &text) {
    const size_t first = text.find_first_not_of(BLANKS);
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(BLANKS) - first + 1);
}

//! Ceph writes "mon host" and "mon_host".
std::string OptionName(const std::string &text) {
    std::istringstream words(text);
    std::string name;
    for (std::string word; words >> word;) {
        name += (name.empty() ? "" : "_") + word;
    }
    return name;
}

std::string OptionValue(const std::string &text) {
    const std::string value = WithoutBlanks(text);
    const bool quoted =
        value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front();
    return quoted ? value.substr(1, value.size() - 2) : value;
}

//! Of a section: options in one of a higher rank count more. Negative: not for this client.
int SectionRank(const std::string &section, const std::string &user) {
    return section == "global" ? 0 : section == "client" ? 1 : section == "client." + user ? 2 : -1;
}

//! Of the file: a line that ends with a backslash goes on in the next. Without its comment.
bool NextLine(std::istream &file, std::string &line) {
    line.clear();
    bool goes_on = true;
    for (std::string part; goes_on && std::getline(file, part);) {
        const size_t end = part.find_last_not_of(BLANKS);
        goes_on = end != std::string::npos && part[end] == '\\';
        line += goes_on ? part.substr(0, end) : part + "\n";
    }
    const bool found = !line.empty();
    line = line.substr(0, line.find_first_of(";#\n"));
    return found;
}

} // namespace

std::map<std::string, std::string> ReachingOptions(std::istream &file, const std::string &user) {
    std::map<std::string, std::string> options;
    std::map<std::string, int> ranks;
    int rank = SectionRank("global", user);
    for (std::string line; NextLine(file, line);) {
        const std::string text = WithoutBlanks(line);
        if (!text.empty() && text.front() == '[') {
            rank = SectionRank(WithoutBlanks(text.substr(1, text.find(']') - 1)), user);
            continue;
        }
        const size_t equals = text.find('=');
        const std::string name = OptionName(text.substr(0, equals));
        const bool counts =
            std::find(REACHING_OPTIONS.begin(), REACHING_OPTIONS.end(), name) != REACHING_OPTIONS.end();
        if (equals == std::string::npos || !counts || rank < 0 ||
            rank < ranks.emplace(name, rank).first->second) {
            continue;
        }
        ranks[name] = rank;
        options[name] = OptionValue(text.substr(equals + 1));
    }
    return options;
}

} // namespace rawduck_ceph
