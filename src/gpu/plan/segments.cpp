#include "gpu/plan/segments.hpp"

#include "duckdb/function/compression_function.hpp"
#include "duckdb/storage/block_manager.hpp"
#include "duckdb/storage/statistics/numeric_stats.hpp"
#include "duckdb/storage/statistics/string_stats.hpp"
#include "duckdb/storage/storage_manager.hpp"
#include "duckdb/storage/table/column_data.hpp"
#include "duckdb/storage/table/column_segment.hpp"
#include "duckdb/storage/table/standard_column_data.hpp"
#include "duckdb/storage/table/validity_column_data.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck::gpu {
namespace {

using duckdb::ColumnSegment;
using duckdb::CompressionType;
using duckdb::PhysicalType;

//! The checksum. The blocks of encrypted databases have more in front of their contents.
constexpr uint64_t PLAIN_HEADER_BYTES = sizeof(uint64_t);

std::optional<Codec> CodecOf(CompressionType type) {
    switch (type) {
    case CompressionType::COMPRESSION_CONSTANT:
        return Codec::CONSTANT;
    case CompressionType::COMPRESSION_UNCOMPRESSED:
        return Codec::UNCOMPRESSED;
    case CompressionType::COMPRESSION_BITPACKING:
        return Codec::BITPACKING;
    case CompressionType::COMPRESSION_RLE:
        return Codec::RLE;
    case CompressionType::COMPRESSION_ALP:
        return Codec::ALP;
    case CompressionType::COMPRESSION_ALPRD:
        return Codec::ALPRD;
    case CompressionType::COMPRESSION_DICT_FSST:
        return Codec::DICT_FSST;
    case CompressionType::COMPRESSION_ROARING:
        return Codec::ROARING;
    default:
        return std::nullopt;
    }
}

//! The value of a constant segment, which its statistics have as their minimum. False where they have none.
bool TakeConstant(const ColumnSegment &segment, PhysicalType type, std::array<uint8_t, 16> &constant) {
    const auto &stats = segment.GetStats();
    if (type == PhysicalType::BIT) {
        constant[0] = stats.CanHaveNull() ? 0 : 1;
        return true;
    }
    if (stats.GetStatsType() != duckdb::StatisticsType::NUMERIC_STATS ||
        !duckdb::NumericStats::HasMin(stats)) {
        return false;
    }
    const duckdb::Value minimum = duckdb::NumericStats::Min(stats);
    const auto take = [&](const auto value) { std::memcpy(constant.data(), &value, sizeof(value)); };
    switch (duckdb::GetTypeIdSize(type)) {
    case 1:
        take(minimum.GetValueUnsafe<uint8_t>());
        return true;
    case 2:
        take(minimum.GetValueUnsafe<uint16_t>());
        return true;
    case 4:
        take(minimum.GetValueUnsafe<uint32_t>());
        return true;
    case 8:
        take(minimum.GetValueUnsafe<uint64_t>());
        return true;
    case 16:
        take(minimum.GetValueUnsafe<duckdb::hugeint_t>());
        return true;
    default:
        return false;
    }
}

//! That a segment has, whose strings lie in its block.
uint64_t MostCharacters(ColumnSegment &segment, uint64_t byte_count) {
    constexpr uint64_t LONGEST = 16384; // in a dictionary
    const auto &stats = segment.GetStats();
    const bool is_known = stats.GetStatsType() == duckdb::StatisticsType::STRING_STATS &&
                          duckdb::StringStats::HasMaxStringLength(stats);
    const uint64_t longest = is_known ? duckdb::StringStats::MaxStringLength(stats) : LONGEST;
    const uint64_t most = segment.count * std::min(longest, LONGEST);
    const bool is_plain = segment.GetCompressionFunction().type == CompressionType::COMPRESSION_UNCOMPRESSED;
    return is_plain ? std::min(most, byte_count) : most;
}

struct CountBlocks final : duckdb::BlockIdVisitor {
    void Visit(duckdb::block_id_t) override { count++; }
    uint64_t count = 0;
};

//! Adds the segment; returns why it cannot be decoded, nothing when it can.
std::string AddSegment(duckdb::SegmentNode<ColumnSegment> &node, const duckdb::ColumnData &column, Kind kind,
                       PlannedColumn &planned) {
    auto &segment = node.GetNode();
    const auto &function = segment.GetCompressionFunction();
    PlannedSegment added;
    added.compression = function.type;
    added.codec = CodecOf(function.type);
    added.is_validity = kind == Kind::VALIDITY;
    added.covers_nulls = added.is_validity && function.type == CompressionType::COMPRESSION_EMPTY;
    added.is_persistent = segment.GetSegmentType() == duckdb::ColumnSegmentType::PERSISTENT;
    added.row_start = node.GetRowStart();
    added.rows = segment.count;
    std::string reason;
    if (!added.is_persistent) {
        reason = "rows that no checkpoint has written";
    } else if (added.codec == Codec::CONSTANT) {
        if (!TakeConstant(segment, column.GetType().InternalType(), added.constant)) {
            reason = "a constant without its value";
        }
    } else if (!added.covers_nulls) {
        added.block = segment.GetBlockId();
        added.offset = segment.GetBlockOffset();
        const uint64_t block_size = column.block_manager.GetBlockSize();
        // Behind the end, where damage may have it: no bytes, of which no codec decodes a row.
        const uint64_t room = block_size - std::min<uint64_t>(added.offset, block_size);
        added.byte_count = segment.GetDataSize() ? *segment.GetDataSize() : room;
        added.most_characters = kind == Kind::STRING ? MostCharacters(segment, added.byte_count) : 0;
        added.lease = segment.GetBlockHandle();
        CountBlocks blocks;
        segment.VisitBlockIds(blocks);
        if (!added.codec || !CanDecode(*added.codec, kind)) {
            reason = "codec " + duckdb::CompressionTypeToString(function.type);
        } else if (blocks.count != 1) {
            reason = "strings that lie in blocks of their own";
        } else if (added.byte_count > room) {
            reason = "a segment that is longer than its block";
        }
    }
    planned.segments.push_back(std::move(added));
    return reason;
}

void AddSegments(duckdb::ColumnData &column, Kind kind, uint64_t rows, PlannedColumn &planned) {
    uint64_t found_rows = 0;
    for (auto &node : column.GetSegmentTree().SegmentNodes()) {
        const std::string reason = AddSegment(node, column, kind, planned);
        found_rows += planned.segments.back().rows;
        if (planned.reason.empty()) {
            planned.reason = reason;
        }
    }
    if (planned.reason.empty() && found_rows != rows) {
        planned.reason = "segments of " + std::to_string(found_rows) + " rows";
    }
}

//! Validity without bytes of its own says that the codec of the data has the nulls. Of ours, one does. Where only some
//! of the validity is like that, the rest would have to be merged with it.
bool HasNullsThatNobodyDecodes(const PlannedColumn &planned) {
    bool is_inside = false, is_all_inside = true, is_dictionary = true;
    for (const PlannedSegment &segment : planned.segments) {
        is_inside |= segment.covers_nulls;
        is_all_inside &= !segment.is_validity || segment.covers_nulls;
        is_dictionary &= segment.is_validity || segment.codec == Codec::DICT_FSST;
    }
    return is_inside && !(is_all_inside && is_dictionary);
}

} // namespace

std::optional<Kind> KindOf(const duckdb::LogicalType &type) {
    switch (type.InternalType()) {
    case PhysicalType::BOOL:
        return Kind::BOOL;
    case PhysicalType::INT8:
    case PhysicalType::UINT8:
        return Kind::INT8;
    case PhysicalType::INT16:
    case PhysicalType::UINT16:
        return Kind::INT16;
    case PhysicalType::INT32:
    case PhysicalType::UINT32:
        return Kind::INT32;
    case PhysicalType::INT64:
    case PhysicalType::UINT64:
        return Kind::INT64;
    case PhysicalType::INT128:
    case PhysicalType::UINT128:
        return Kind::INT128;
    case PhysicalType::FLOAT:
        return Kind::FLOAT32;
    case PhysicalType::DOUBLE:
        return Kind::FLOAT64;
    case PhysicalType::VARCHAR:
        return Kind::STRING;
    default:
        return std::nullopt;
    }
}

PlannedColumn PlanColumn(duckdb::ColumnData &column, const TableColumn &as, uint64_t rows) {
    PlannedColumn planned;
    auto *standard = dynamic_cast<duckdb::StandardColumnData *>(&column);
    if (!as.kind || !standard) {
        planned.reason = "type " + as.type.ToString();
        return planned;
    }
    planned.has_updates = standard->HasUpdates() || standard->GetValidityData().HasUpdates();
    if (column.block_manager.InMemory()) {
        planned.reason = "database in memory";
    } else if (column.block_manager.GetBlockHeaderSize() != PLAIN_HEADER_BYTES ||
               column.GetStorageManager().IsEncrypted()) {
        planned.reason = "encrypted database";
    } else if (planned.has_updates) {
        planned.reason = "updates that no checkpoint has merged";
    }
    planned.segments.reserve(2);
    AddSegments(*standard, *as.kind, rows, planned);
    AddSegments(standard->GetValidityData(), Kind::VALIDITY, rows, planned);
    if (planned.reason.empty() && HasNullsThatNobodyDecodes(planned)) {
        planned.reason =
            "nulls inside codec " + duckdb::CompressionTypeToString(planned.segments.front().compression);
    }
    return planned;
}

} // namespace rawduck::gpu
