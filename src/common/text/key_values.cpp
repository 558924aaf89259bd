#include "common/text/key_values.hpp"

#include "common/error.hpp"

#include <algorithm>

namespace rawduck {
namespace {

std::string Trimmed(const std::string &text) {
    const size_t begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

} // namespace

std::vector<KeyValue> ParseKeyValues(const std::string &text) {
    std::vector<KeyValue> pairs;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string piece = Trimmed(text.substr(begin, end - begin));
        const size_t equals = piece.find('=');
        if (equals == std::string::npos) {
            throw Error(ErrorCode::INVALID, "\"" + piece + "\" is not a pair");
        }
        KeyValue pair{Trimmed(piece.substr(0, equals)), Trimmed(piece.substr(equals + 1))};
        if (std::any_of(pairs.begin(), pairs.end(),
                        [&](const KeyValue &other) { return other.key == pair.key; })) {
            throw Error(ErrorCode::INVALID, "\"" + pair.key + "\" is named twice");
        }
        pairs.push_back(std::move(pair));
        begin = end + 1;
    }
    return pairs;
}

} // namespace rawduck
