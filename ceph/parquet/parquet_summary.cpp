#include "ceph/parquet/parquet_summary.hpp"

#include "ceph/parquet/parquet_columns.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck_ceph {

namespace {

constexpr size_t TAIL_BYTES = 8; // length and magic

class SummaryReader {
  public:
    SummaryReader(const char *data, size_t length, ParquetSummary &summary)
        : reader_(data, length), summary_(summary) {}

    void Run() {
        reader_.Struct([this](int16_t id, uint8_t type) {
            if (id == FILE_ROWS) {
                summary_.rows = static_cast<uint64_t>(std::max<int64_t>(reader_.Number(type), 0));
            } else if (id == FILE_ROW_GROUPS) {
                ForEachColumnMetadata(reader_, type, [this] { ColumnMetadata(); });
            } else {
                reader_.Skip(type);
            }
        });
    }

  private:
    void ColumnMetadata() {
        std::string name;
        int64_t stored = 0, distinct = 0;
        size_t levels = 0;
        reader_.Struct([&](int16_t id, uint8_t type) {
            if (id == COLUMN_PATH) {
                reader_.TextList(type, [&](std::string part) {
                    name = std::move(part);
                    levels++;
                });
            } else if (id == COLUMN_STORED_BYTES) {
                stored = reader_.Number(type);
            } else if (id == COLUMN_STATISTICS && type == STRUCT) {
                distinct = Distinct();
            } else {
                reader_.Skip(type);
            }
        });
        if (levels == 1) {
            ParquetColumn &column = summary_.columns[name];
            column.stored_bytes += static_cast<uint64_t>(std::max<int64_t>(stored, 0));
            column.distinct_values = std::max(column.distinct_values, static_cast<uint64_t>(distinct));
        }
    }

    int64_t Distinct() {
        int64_t distinct = 0;
        reader_.Struct([&](int16_t id, uint8_t type) {
            if (id == STATISTICS_DISTINCT) {
                distinct = std::max<int64_t>(reader_.Number(type), 0);
            } else {
                reader_.Skip(type);
            }
        });
        return distinct;
    }

    ThriftReader reader_;
    ParquetSummary &summary_;
};

} // namespace

size_t SummarizeParquet(const char *tail, size_t length, ParquetSummary &summary) {
    if (length < TAIL_BYTES || std::memcmp(tail + length - 4, "PAR1", 4) != 0) {
        return SIZE_MAX;
    }
    uint32_t footer;
    std::memcpy(&footer, tail + length - TAIL_BYTES, sizeof footer);
    const size_t needed = size_t{footer} + TAIL_BYTES;
    if (needed > length) {
        return needed;
    }
    try {
        SummaryReader(tail + length - needed, footer, summary).Run();
        return 0;
    } catch (const InvalidParquet &) {
        return SIZE_MAX;
    }
}

} // namespace rawduck_ceph
