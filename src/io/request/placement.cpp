#include "io/request/placement.hpp"

#include "common/error.hpp"
#include "common/text/key_values.hpp"
#include "common/text/name_table.hpp"

#include <algorithm>

namespace rawduck {
namespace {

constexpr PlacementClass CLASSES[] = {PlacementClass::DATABASE, PlacementClass::METADATA, PlacementClass::WAL,
                                      PlacementClass::TEMPORARY};
constexpr NamedValue<PlacementClass> CLASS_NAMES[] = {{PlacementClass::DATABASE, "database"},
                                                      {PlacementClass::METADATA, "metadata"},
                                                      {PlacementClass::WAL, "wal"},
                                                      {PlacementClass::TEMPORARY, "temporary"}};
static_assert(sizeof(CLASSES) / sizeof(CLASSES[0]) == PLACEMENT_CLASS_COUNT, "all of them");

//! For 1, 2, 3 and 4 identifiers: which of them each class gets, in the order of CLASSES.
constexpr size_t SHARES[][PLACEMENT_CLASS_COUNT] = {{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 1, 1, 2}, {0, 3, 1, 2}};
constexpr size_t MOST_SHARES = sizeof(SHARES) / sizeof(SHARES[0]);

std::string WithoutSpaces(std::string text) {
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    return text;
}

PlacementClass ParseClass(const std::string &name) {
    if (const auto placement_class = FindValue(CLASS_NAMES, name)) {
        return *placement_class;
    }
    throw Error(ErrorCode::INVALID,
                "there is no class \"" + name + "\", only database, metadata, wal and temporary");
}

PlacementId ParseIdentifier(const std::string &digits) {
    constexpr size_t MOST_DIGITS = 5;
    const bool number = !digits.empty() && digits.size() <= MOST_DIGITS &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long value = number ? std::stoul(digits) : UINT16_MAX;
    if (value >= UINT16_MAX) {
        throw Error(ErrorCode::INVALID,
                    "\"" + digits + "\" is not a placement identifier (a number below 65535)");
    }
    return static_cast<PlacementId>(value);
}

[[noreturn]] void Refuse(const std::string &text, const std::string &why) {
    throw Error(ErrorCode::INVALID,
                "nvme_placement: \"" + text + "\": " + why +
                    "; write auto, off, or pairs such as database=0,wal=1,temporary=2,metadata=3");
}

PlacementMap ParsePairs(const std::string &pairs, const std::string &text) {
    PlacementMap map;
    try {
        for (const KeyValue &pair : ParseKeyValues(pairs)) {
            map[ParseClass(pair.key)] = ParseIdentifier(pair.value);
        }
    } catch (const Error &error) {
        Refuse(text, error.what());
    }
    return map;
}

std::string ListIdentifiers(const std::vector<PlacementId> &identifiers) {
    std::string list;
    for (PlacementId id : identifiers) {
        list += (list.empty() ? "" : ", ") + std::to_string(static_cast<unsigned>(id));
    }
    return list;
}

PlacementMap DistributeIdentifiers(const std::vector<PlacementId> &identifiers) {
    PlacementMap map;
    if (!identifiers.empty()) {
        const auto &shares = SHARES[std::min(identifiers.size(), MOST_SHARES) - 1];
        for (size_t i = 0; i < PLACEMENT_CLASS_COUNT; i++) {
            map[CLASSES[i]] = identifiers[shares[i]];
        }
    }
    return map;
}

} // namespace

const char *PlacementClassName(PlacementClass placement_class) {
    return NameOf(CLASS_NAMES, placement_class);
}

std::string PlacementMap::Text() const {
    std::string text;
    for (PlacementClass placement_class : CLASSES) {
        const PlacementId id = (*this)[placement_class];
        if (id != PlacementId::NONE) {
            text += (text.empty() ? "" : ", ") + std::string(PlacementClassName(placement_class)) + "=" +
                    std::to_string(static_cast<unsigned>(id));
        }
    }
    return text;
}

std::string PlacementRequest::Text() const {
    switch (mode) {
    case Mode::AUTO:
        return "auto";
    case Mode::OFF:
        return "off";
    case Mode::EXPLICIT:
        break;
    }
    return map.Text();
}

PlacementRequest ParsePlacement(const std::string &text) {
    const std::string plain = WithoutSpaces(text);
    PlacementRequest request;
    if (plain == "off") {
        request.mode = PlacementRequest::Mode::OFF;
    } else if (plain != "auto") {
        request.mode = PlacementRequest::Mode::EXPLICIT;
        request.map = ParsePairs(plain, text);
    }
    return request;
}

PlacementMap MapPlacement(const PlacementRequest &request, const std::vector<PlacementId> &identifiers,
                          const std::string &obstacle, const std::string &target_name) {
    if (request.mode == PlacementRequest::Mode::OFF) {
        return PlacementMap();
    }
    if (request.mode == PlacementRequest::Mode::AUTO) {
        return DistributeIdentifiers(identifiers);
    }
    if (identifiers.empty()) {
        throw Error(ErrorCode::UNSUPPORTED, target_name + ": nvme_placement asks for \"" +
                                                request.map.Text() + "\", but " + obstacle +
                                                "; set it to auto");
    }
    for (PlacementClass placement_class : CLASSES) {
        const PlacementId id = request.map[placement_class];
        if (id != PlacementId::NONE &&
            std::find(identifiers.begin(), identifiers.end(), id) == identifiers.end()) {
            throw Error(ErrorCode::INVALID, target_name + ": nvme_placement asks for " +
                                                PlacementClassName(placement_class) + "=" +
                                                std::to_string(static_cast<unsigned>(id)) +
                                                ", but the namespace has only the placement identifiers " +
                                                ListIdentifiers(identifiers));
        }
    }
    return request.map;
}

} // namespace rawduck
