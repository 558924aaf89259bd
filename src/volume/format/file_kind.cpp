#include "volume/format/file_kind.hpp"

#include "common/text/name_table.hpp"

namespace rawduck {

const char *FileKindName(FileKind kind) {
    static constexpr NamedValue<FileKind> NAMES[] = {{FileKind::DATABASE, "database"},
                                                     {FileKind::WAL, "wal"},
                                                     {FileKind::TEMP, "temp"},
                                                     {FileKind::OTHER, "other"},
                                                     {FileKind::DIRECTORY, "directory"}};
    return NameOf(NAMES, kind);
}

bool IsStored(FileKind kind) {
    return kind == FileKind::DATABASE || kind == FileKind::WAL || kind == FileKind::OTHER ||
           kind == FileKind::DIRECTORY;
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
