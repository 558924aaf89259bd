#include "ceph/parquet/footer.hpp"

#include "ceph/parquet/footer_checksum.hpp"
#include "ceph/parquet/thrift_reader.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck_ceph {

namespace {

//! Parses FileMetaData and checks what must be consistent.
class MetadataCheck {
  public:
    MetadataCheck(const char *data, size_t length, uint64_t data_end, ParquetLayout *layout)
        : reader_(data, length), data_end_(data_end), layout_(layout) {}

    void Run() {
        reader_.Struct([this](int16_t id, uint8_t type) {
            if (id == 2) {
                reader_.StructList(type, [this] { SchemaElement(); });
            } else if (id == 3) {
                file_rows_ = reader_.Number(type);
            } else if (id == 4) {
                reader_.StructList(type, [this] { RowGroup(); });
            } else {
                reader_.Skip(type);
            }
        });
        Require(reader_.AtEnd(), "bytes follow the metadata");
        Require(elements_ > 1, "it has no schema");
        Require(children_ == elements_ - 1, "its schema's elements do not add up");
        Require(file_rows_ == group_rows_, "its row groups do not add up to its number of rows");
        Require(used_bytes_ <= data_end_, "its column chunks are larger than the object");
    }

  private:
    static constexpr const char *OUTSIDE = "a column chunk lies outside the object";

    static void Require(bool condition, const char *message) {
        if (!condition) {
            throw InvalidParquet{message};
        }
    }

    void SchemaElement() {
        int64_t children = 0;
        int64_t repetition = 0;
        reader_.Struct([&](int16_t id, uint8_t type) {
            if (id == 3) {
                repetition = reader_.Number(type);
            } else if (id == 5) {
                children = reader_.Number(type);
            } else {
                reader_.Skip(type);
            }
        });
        Require(children >= 0 && children < INT32_MAX, "a schema element has a negative number of children");
        elements_++;
        children_ += children;
        leaves_ += children == 0 ? 1 : 0;
        // With repeated or nested elements below the root, the number of values is not the number of rows.
        flat_ = flat_ && (elements_ == 1 || (children == 0 && repetition != 2));
    }

    void RowGroup() {
        int64_t rows = -1;
        std::vector<int64_t> values;
        has_lost_chunk_ = false;
        reader_.Struct([&](int16_t id, uint8_t type) {
            if (id == 1) {
                reader_.StructList(type, [&] { values.push_back(ColumnChunk()); });
            } else if (id == 3) {
                rows = reader_.Number(type);
            } else {
                reader_.Skip(type);
            }
        });
        Require(rows >= 0 && rows < INT64_MAX / 2 - group_rows_, "a row group's number of rows is absurd");
        Require(rows == 0 || !has_lost_chunk_, OUTSIDE);
        Require(static_cast<int64_t>(values.size()) == leaves_,
                "a row group has not one chunk for each column");
        for (int64_t value_count : values) {
            Require(!flat_ || value_count == rows, "a column chunk has not one value for each row");
        }
        group_rows_ += rows;
        row_groups_++;
    }

    //! Returns the number of values.
    int64_t ColumnChunk() {
        int64_t values = -1;
        reader_.Struct([&](int16_t id, uint8_t type) {
            Require(id != 1, "a column chunk lies in another file");
            if (id == 3) {
                Require(type == STRUCT, "a column chunk's metadata is not a structure");
                values = ColumnMetadata();
            } else {
                reader_.Skip(type);
            }
        });
        Require(values >= 0, "a column chunk has no metadata");
        return values;
    }

    int64_t ColumnMetadata() {
        int64_t values = -1, raw = -1, stored = -1, data_page = -1, dictionary = -1;
        int64_t filter_start = 0, filter_bytes = 0;
        std::string column;
        reader_.Struct([&](int16_t id, uint8_t type) {
            int64_t *number = id == 5    ? &values
                              : id == 6  ? &raw
                              : id == 7  ? &stored
                              : id == 9  ? &data_page
                              : id == 11 ? &dictionary
                              : id == 14 ? &filter_start
                              : id == 15 ? &filter_bytes
                                         : nullptr;
            if (number) {
                *number = reader_.Number(type);
            } else if (id == 3 && layout_) {
                bool is_root = true;
                reader_.TextList(type, [&](std::string part) {
                    column = is_root ? std::move(part) : column;
                    is_root = false;
                });
            } else {
                reader_.Skip(type);
            }
        });
        // Some writers put a dictionary offset of 0 where there is none.
        int64_t start = dictionary > 0 && dictionary < data_page ? dictionary : data_page;
        Require(values >= 0 && raw >= 0 && stored >= 0, "a column chunk has a negative size");
        const bool inside = start >= 4 && stored <= static_cast<int64_t>(data_end_) &&
                            start <= static_cast<int64_t>(data_end_) - stored;
        Require(inside || values == 0, OUTSIDE);
        if (!inside) {
            has_lost_chunk_ = true;
            return values;
        }
        Require(data_page < start + stored || stored == 0, "a data page lies outside its column chunk");
        used_bytes_ += static_cast<uint64_t>(stored);
        if (layout_) {
            // DuckDB reports a filter that lies elsewhere.
            const bool has_filter = filter_start > 0 && filter_start < static_cast<int64_t>(data_end_);
            layout_->chunks.push_back({row_groups_, std::move(column), static_cast<uint64_t>(start),
                                       static_cast<uint64_t>(stored),
                                       has_filter ? static_cast<uint64_t>(filter_start) : 0,
                                       static_cast<uint64_t>(std::max<int64_t>(filter_bytes, 0))});
        }
        return values;
    }

    ThriftReader reader_;
    uint64_t data_end_;
    ParquetLayout *layout_; //!< may be null
    size_t row_groups_ = 0;
    //! Of the row group: a chunk without values lies nowhere. PyArrow writes such ones where there are no rows.
    bool has_lost_chunk_ = false;
    int64_t elements_ = 0, children_ = 0, leaves_ = 0;
    bool flat_ = true;
    int64_t file_rows_ = -1;
    int64_t group_rows_ = 0;
    uint64_t used_bytes_ = 0;
};

} // namespace

std::string CheckMetadata(const char *data, size_t length, uint64_t data_end, ParquetLayout *layout) {
    try {
        MetadataCheck(data, length, data_end, layout).Run();
        return {};
    } catch (const InvalidParquet &invalid) {
        return std::string("its Parquet footer is damaged: ") + invalid.why;
    }
}

std::string CheckFooter(ObjectSource &object, ParquetLayout *layout) {
    const uint64_t size = object.Size();
    if (size < 4 + PARQUET_TAIL_BYTES) {
        return "it is too short for a Parquet file";
    }
    char tail[PARQUET_TAIL_BYTES];
    object.Read(size - PARQUET_TAIL_BYTES, PARQUET_TAIL_BYTES, tail);
    uint32_t length;
    std::memcpy(&length, tail, sizeof(length));
    if (std::memcmp(tail + 4, PARQUET_MAGIC, sizeof(PARQUET_MAGIC)) != 0) {
        return "it does not end as a Parquet file does";
    }
    if (length > FOOTER_BYTES_MAX || length > size - PARQUET_TAIL_BYTES - 4) {
        return "its Parquet footer is longer than the object or than " + std::to_string(FOOTER_BYTES_MAX) +
               " bytes";
    }
    const uint64_t start = size - PARQUET_TAIL_BYTES - length;
    std::string footer(length + PARQUET_TAIL_BYTES, '\0');
    object.Read(start, footer.size(), &footer[0]);
    uint32_t recorded;
    if (object.RecordedFooterCrc(recorded) && recorded != FooterCrc(footer.data(), footer.size())) {
        return "its Parquet footer does not match the checksum that its writer recorded";
    }
    if (layout) {
        layout->footer_start = start;
    }
    return CheckMetadata(footer.data(), length, start, layout);
}

} // namespace rawduck_ceph
