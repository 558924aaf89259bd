//! Lists of pairs as people write them in a setting: "mode=pool,depth=64".
#pragma once

#include <string>
#include <vector>

namespace rawduck {

struct KeyValue {
    std::string key, value;
};

//! In the order in which they stand, without the spaces around keys and values. Throws Error INVALID for a
//! piece that is not a pair, and for a key that is named twice; the message does not name the setting.
std::vector<KeyValue> ParseKeyValues(const std::string &text);

} // namespace rawduck
