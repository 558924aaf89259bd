//! Tables of the names that enumerators have in settings, in SQL and in messages.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace rawduck {

//! An array of these is a table; each enumerator and each name is in it once.
template <class ENUM> struct NamedValue {
    ENUM value;
    const char *name;
};

//! Nothing when no enumerator has that name.
template <class ENUM, size_t COUNT>
std::optional<ENUM> FindValue(const NamedValue<ENUM> (&table)[COUNT], const std::string &name) {
    for (const NamedValue<ENUM> &entry : table) {
        if (name == entry.name) {
            return entry.value;
        }
    }
    return std::nullopt;
}

//! "unknown" for what is not in the table.
template <class ENUM, size_t COUNT> const char *NameOf(const NamedValue<ENUM> (&table)[COUNT], ENUM value) {
    for (const NamedValue<ENUM> &entry : table) {
        if (value == entry.value) {
            return entry.name;
        }
    }
    return "unknown";
}

//! All names, as a message lists them: "sync, single, pool".
template <class ENUM, size_t COUNT> std::string ListNames(const NamedValue<ENUM> (&table)[COUNT]) {
    std::string list;
    for (const NamedValue<ENUM> &entry : table) {
        list += std::string(list.empty() ? "" : ", ") + entry.name;
    }
    return list;
}

} // namespace rawduck
