#include "volume/format/file_kind.hpp"

namespace rawduck {

const char *FileKindName(FileKind kind) {
    switch (kind) {
    case FileKind::DATABASE:
        return "database";
    case FileKind::WAL:
        return "wal";
    case FileKind::TEMP:
        return "temp";
    case FileKind::DIRECTORY:
        return "directory";
    case FileKind::OTHER:
        break;
    }
    return "other";
}

PlacementClass PlacementOf(FileKind kind) {
    switch (kind) {
    case FileKind::WAL:
        return PlacementClass::WAL;
    case FileKind::TEMP:
        return PlacementClass::TEMPORARY;
    case FileKind::DATABASE:
    case FileKind::DIRECTORY:
    case FileKind::OTHER:
        break;
    }
    return PlacementClass::DATABASE;
}

} // namespace rawduck
