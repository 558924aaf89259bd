#include "ceph/parquet/object_statistics.hpp"

#include "ceph/parquet/footer_checksum.hpp"
#include "ceph/parquet/parquet_columns.hpp"
#include "ceph/protocol/bytes.hpp"
#include "common/crc32c.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

namespace rawduck_ceph {

namespace {

constexpr uint8_t FORMAT_VERSION = 1;
//! Longer texts have no bounds, and columns that do not fit into the attribute have none.
constexpr size_t TEXT_BYTES_MAX = 64;
constexpr size_t ATTRIBUTE_BYTES_MAX = 16 * 1024;

struct IntegerType {
    int64_t converted;
    int64_t stored;
    const char *name;
};
constexpr IntegerType INTEGER_TYPES[] = {
    {NOT_CONVERTED, TYPE_INT32, "INTEGER"},       {NOT_CONVERTED, TYPE_INT64, "BIGINT"},
    {CONVERTED_DATE, TYPE_INT32, "DATE"},         {CONVERTED_UINT_8, TYPE_INT32, "UTINYINT"},
    {CONVERTED_UINT_16, TYPE_INT32, "USMALLINT"}, {CONVERTED_UINT_32, TYPE_INT32, "UINTEGER"},
    {CONVERTED_INT_8, TYPE_INT32, "TINYINT"},     {CONVERTED_INT_16, TYPE_INT32, "SMALLINT"},
    {CONVERTED_INT_32, TYPE_INT32, "INTEGER"},    {CONVERTED_INT_64, TYPE_INT64, "BIGINT"},
};

//! An element of the schema, as far as it decides about the type.
struct SchemaElement {
    std::string name;
    int64_t stored = 0;
    int64_t converted = NOT_CONVERTED;
    int64_t children = 0;
    int64_t repetition = 0;
    int64_t scale = 0, precision = 0;
    bool has_logical_type = false;
    bool local_microseconds = false; //!< a TIMESTAMP without time zone, in microseconds

    //! Empty for the types that have no bounds here.
    std::string TypeName() const {
        if (children > 0 || repetition == REPETITION_REPEATED) {
            return {};
        }
        if (stored == TYPE_BYTE_ARRAY) {
            return converted == CONVERTED_UTF8 ? "VARCHAR" : "";
        }
        if (local_microseconds) {
            return stored == TYPE_INT64 ? "TIMESTAMP" : "";
        }
        if (converted == CONVERTED_DECIMAL && (stored == TYPE_INT32 || stored == TYPE_INT64)) {
            return "DECIMAL(" + std::to_string(precision) + "," + std::to_string(scale) + ")";
        }
        if (converted == NOT_CONVERTED && has_logical_type) {
            return {}; // a meaning that only the logical type has
        }
        for (const IntegerType &type : INTEGER_TYPES) {
            if (type.converted == converted && type.stored == stored) {
                return type.name;
            }
        }
        return {};
    }

    bool IsUnsigned32() const { return converted == CONVERTED_UINT_32; }
};

std::string LowerCase(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

//! The bounds of one column in one row group, as Parquet encodes them.
struct EncodedBounds {
    std::optional<std::string> minimum, maximum;
};

class StatisticsReader {
  public:
    StatisticsReader(const char *data, size_t length) : reader_(data, length) {}

    ObjectStatistics Run() {
        reader_.Struct([this](int16_t id, uint8_t type) {
            if (id == FILE_SCHEMA) {
                reader_.StructList(type, [this] { Element(); });
            } else if (id == FILE_ROW_GROUPS) {
                ForEachColumnMetadata(reader_, type, [this] { ColumnMetadata(); });
            } else {
                reader_.Skip(type);
            }
        });
        for (const std::string &name : unknown_) {
            statistics_.erase(name);
        }
        return ambiguous_ ? ObjectStatistics() : std::move(statistics_);
    }

  private:
    void Element() {
        SchemaElement element;
        reader_.Struct([&](int16_t id, uint8_t type) {
            switch (id) {
            case ELEMENT_TYPE:
                element.stored = reader_.Number(type);
                break;
            case ELEMENT_REPETITION:
                element.repetition = reader_.Number(type);
                break;
            case ELEMENT_NAME:
                element.name = reader_.Text(type);
                break;
            case ELEMENT_CHILDREN:
                element.children = reader_.Number(type);
                break;
            case ELEMENT_CONVERTED:
                element.converted = reader_.Number(type);
                break;
            case ELEMENT_SCALE:
                element.scale = reader_.Number(type);
                break;
            case ELEMENT_PRECISION:
                element.precision = reader_.Number(type);
                break;
            case ELEMENT_LOGICAL:
                element.has_logical_type = true;
                LogicalType(type, element);
                break;
            default:
                reader_.Skip(type);
            }
        });
        // The first element is the root. Elements below another one are no flat columns.
        const bool is_root = elements_++ == 0;
        if (!is_root && nested_ == 0 && element.children == 0) {
            columns_[element.name] = element;
        }
        // DuckDB gives other names to columns whose names differ in case only.
        if (!is_root && nested_ == 0 && !names_.insert(LowerCase(element.name)).second) {
            ambiguous_ = true;
        }
        if (!is_root) {
            nested_ += element.children - (nested_ > 0 ? 1 : 0);
        }
    }

    void LogicalType(uint8_t type, SchemaElement &element) {
        if (type != STRUCT) {
            reader_.Skip(type);
            return;
        }
        reader_.Struct([&](int16_t id, uint8_t inner) {
            if (id != LOGICAL_TIMESTAMP || inner != STRUCT) {
                reader_.Skip(inner);
                return;
            }
            bool to_utc = true, microseconds = false;
            reader_.Struct([&](int16_t field, uint8_t field_type) {
                if (field == TIMESTAMP_TO_UTC) {
                    to_utc = field_type != FALSE_VALUE;
                }
                if (field == TIMESTAMP_UNIT && field_type == STRUCT) {
                    reader_.Struct([&](int16_t unit, uint8_t unit_type) {
                        microseconds = unit == UNIT_MICROSECONDS;
                        reader_.Skip(unit_type);
                    });
                } else {
                    reader_.Skip(field_type);
                }
            });
            element.local_microseconds = !to_utc && microseconds;
        });
    }

    void ColumnMetadata() {
        std::string name;
        size_t levels = 0;
        EncodedBounds bounds;
        reader_.Struct([&](int16_t id, uint8_t type) {
            if (id == COLUMN_PATH) {
                reader_.TextList(type, [&](std::string part) {
                    name = std::move(part);
                    levels++;
                });
            } else if (id == COLUMN_STATISTICS && type == STRUCT) {
                Bounds(bounds);
            } else {
                reader_.Skip(type);
            }
        });
        if (levels == 1 && !Merge(name, bounds)) {
            unknown_.push_back(name); // in this row group, and so in the object
        }
    }

    void Bounds(EncodedBounds &bounds) {
        reader_.Struct([&](int16_t id, uint8_t type) {
            if (id == STATISTICS_MAXIMUM) {
                bounds.maximum = reader_.Text(type);
            } else if (id == STATISTICS_MINIMUM) {
                bounds.minimum = reader_.Text(type);
            } else {
                reader_.Skip(type);
            }
        });
    }

    //! False when the bounds are not known.
    bool Merge(const std::string &name, const EncodedBounds &encoded) {
        auto column = columns_.find(name);
        if (column == columns_.end() || !encoded.minimum || !encoded.maximum) {
            return false;
        }
        ColumnBounds bounds;
        bounds.type = column->second.TypeName();
        if (bounds.type.empty() || !Decode(column->second, encoded, bounds)) {
            return false;
        }
        auto added = statistics_.emplace(name, bounds);
        if (!added.second) {
            ColumnBounds &all = added.first->second;
            all.minimum = std::min(all.minimum, bounds.minimum);
            all.maximum = std::max(all.maximum, bounds.maximum);
            all.minimum_text = std::min(all.minimum_text, bounds.minimum_text);
            all.maximum_text = std::max(all.maximum_text, bounds.maximum_text);
        }
        return true;
    }

    static bool Decode(const SchemaElement &element, const EncodedBounds &encoded, ColumnBounds &bounds) {
        if (element.stored == TYPE_BYTE_ARRAY) {
            bounds.minimum_text = *encoded.minimum;
            bounds.maximum_text = *encoded.maximum;
            return bounds.minimum_text.size() <= TEXT_BYTES_MAX &&
                   bounds.maximum_text.size() <= TEXT_BYTES_MAX;
        }
        return Number(element, *encoded.minimum, bounds.minimum) &&
               Number(element, *encoded.maximum, bounds.maximum);
    }

    static bool Number(const SchemaElement &element, const std::string &bytes, int64_t &number) {
        int32_t narrow = 0;
        if (element.stored == TYPE_INT64 && bytes.size() == sizeof number) {
            std::memcpy(&number, bytes.data(), sizeof number);
            return true;
        }
        if (element.stored != TYPE_INT32 || bytes.size() != sizeof narrow) {
            return false;
        }
        std::memcpy(&narrow, bytes.data(), sizeof narrow);
        number = element.IsUnsigned32() ? static_cast<int64_t>(static_cast<uint32_t>(narrow)) : narrow;
        return true;
    }

    ThriftReader reader_;
    size_t elements_ = 0;
    int64_t nested_ = 0; //!< elements that follow below a nested one
    std::map<std::string, SchemaElement> columns_;
    std::set<std::string> names_; //!< of all top-level columns, in lower case
    bool ambiguous_ = false;
    std::vector<std::string> unknown_;
    ObjectStatistics statistics_;
};

std::string EncodeColumn(const std::string &name, const ColumnBounds &bounds) {
    ByteWriter writer;
    writer.String(name);
    writer.String(bounds.type);
    writer.Integer(bounds.minimum);
    writer.Integer(bounds.maximum);
    writer.String(bounds.minimum_text);
    writer.String(bounds.maximum_text);
    return writer.Take();
}

} // namespace

ObjectStatistics StatisticsOf(const char *object, uint64_t size) {
    uint64_t metadata_bytes;
    if (!FindMetadata(object, size, metadata_bytes)) {
        return {};
    }
    try {
        return StatisticsReader(object + size - PARQUET_TAIL_BYTES - metadata_bytes, metadata_bytes).Run();
    } catch (const InvalidParquet &) {
        return {};
    }
}

std::string EncodeStatistics(const ObjectStatistics &statistics, uint64_t size, const timespec &modified) {
    std::string columns;
    uint32_t count = 0;
    for (const auto &[name, bounds] : statistics) {
        const std::string column = EncodeColumn(name, bounds);
        if (columns.size() + column.size() <= ATTRIBUTE_BYTES_MAX) {
            columns += column;
            count++;
        }
    }
    if (count == 0) {
        return {};
    }
    ByteWriter writer;
    writer.Integer(FORMAT_VERSION);
    writer.Integer(size);
    writer.Integer(static_cast<int64_t>(modified.tv_sec));
    writer.Integer(static_cast<int64_t>(modified.tv_nsec));
    writer.Integer(count);
    const std::string body = writer.Take() + columns;
    writer.Integer(rawduck::Crc32c(0, body.data(), body.size()));
    return body + writer.Take();
}

ObjectStatistics DecodeStatistics(const std::string &value, uint64_t size, const timespec &modified) {
    ObjectStatistics statistics;
    uint32_t crc;
    if (value.size() < sizeof crc) {
        return statistics;
    }
    const size_t length = value.size() - sizeof crc;
    std::memcpy(&crc, value.data() + length, sizeof crc);
    if (crc != rawduck::Crc32c(0, value.data(), length)) {
        return statistics;
    }
    try {
        ByteReader reader(value.data(), length);
        if (reader.Integer<uint8_t>() != FORMAT_VERSION || reader.Integer<uint64_t>() != size ||
            reader.Integer<int64_t>() != modified.tv_sec || reader.Integer<int64_t>() != modified.tv_nsec) {
            return statistics;
        }
        for (uint32_t left = reader.Count(); left > 0; left--) {
            const std::string name = reader.String();
            ColumnBounds &bounds = statistics[name];
            bounds.type = reader.String();
            bounds.minimum = reader.Integer<int64_t>();
            bounds.maximum = reader.Integer<int64_t>();
            bounds.minimum_text = reader.String();
            bounds.maximum_text = reader.String();
        }
        return statistics;
    } catch (const ProtocolError &) {
        return {};
    }
}

} // namespace rawduck_ceph
