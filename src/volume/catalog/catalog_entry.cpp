#include "volume/catalog/catalog_entry.hpp"

#include "common/clock.hpp"
#include "volume/format/extent_list.hpp"

namespace rawduck {

uint64_t CatalogEntry::Units() const {
    return UnitsOf(extents);
}

Item CreateItem(uint64_t file_id, FileKind kind, const std::string &name) {
    Item item(ItemType::CREATE, file_id);
    item.kind = static_cast<uint8_t>(kind);
    item.time_us = NowUs();
    item.name = name;
    return item;
}

Item CloneItem(uint64_t file_id, CloneKind kind, const std::string &name, uint64_t source_id) {
    Item item(ItemType::CLONE, file_id);
    item.kind = static_cast<uint8_t>(kind);
    item.time_us = NowUs();
    item.name = name;
    item.source_id = source_id;
    return item;
}

} // namespace rawduck
