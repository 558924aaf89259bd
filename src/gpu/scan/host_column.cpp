#include "gpu/scan/host_column.hpp"

#include "gpu/decode/utf8.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/common/types/hugeint.hpp"
#include "duckdb/common/types/string_type.hpp"
#include "duckdb/common/types/vector.hpp"
#include "duckdb/common/vector/unified_vector_format.hpp"

#include <cstring>
#include <functional>
#include <string_view>

namespace rawduck::gpu {
namespace {

using duckdb::string_t;
using duckdb::UnifiedVectorFormat;

//! Those that are NULL become zeros: what DuckDB leaves in their place is undefined.
template <class T>
void CopyValues(const UnifiedVectorFormat &format, uint64_t first, uint64_t count, uint8_t *to) {
    const auto *from = reinterpret_cast<const T *>(format.data);
    auto *values = reinterpret_cast<T *>(to);
    for (uint64_t i = 0; i < count; i++) {
        const auto index = format.sel->get_index(first + i);
        values[i] = format.validity.RowIsValid(index) ? from[index] : T();
    }
}

} // namespace

HostColumn::HostColumn(const TableColumn &column, const std::shared_ptr<HostMemory> &memory)
    : name_(column.name), width_(WidthOf(*column.kind)),
      is_text_(column.type.id() == duckdb::LogicalTypeId::VARCHAR), values_(memory), valid_(memory),
      offsets_(memory) {
    if (width_ == 0) {
        offsets_.AppendFill(0, sizeof(uint64_t));
    }
}

void HostColumn::Append(const duckdb::Vector &vector, uint64_t count) {
    UnifiedVectorFormat format;
    vector.ToUnifiedFormat(format);
    AppendValid(format, count);
    if (width_ == 0) {
        AppendTexts(format, count);
    } else {
        AppendValues(format, count);
    }
    rows_ += count;
}

void HostColumn::AppendValid(const UnifiedVectorFormat &format, uint64_t count) {
    if (format.validity.CannotHaveNull()) {
        if (valid_.Size() > 0) {
            valid_.AppendFill(1, count);
        }
        return;
    }
    uint64_t first = 0;
    while (valid_.Size() == 0 && first < count && format.validity.RowIsValid(format.sel->get_index(first))) {
        first++;
    }
    if (first == count) {
        return;
    }
    if (valid_.Size() == 0) {
        valid_.AppendFill(1, rows_ + first);
    }
    valid_.Append(count - first, 1, [&](uint8_t *to, uint64_t begin, uint64_t part) {
        for (uint64_t i = 0; i < part; i++) {
            to[i] = format.validity.RowIsValid(format.sel->get_index(first + begin + i)) ? 1 : 0;
        }
    });
}

void HostColumn::AppendValues(const UnifiedVectorFormat &format, uint64_t count) {
    const bool lie_together = format.validity.CannotHaveNull() && !format.sel->IsSet();
    values_.Append(count, width_, [&](uint8_t *to, uint64_t first, uint64_t part) {
        if (lie_together) {
            std::memcpy(to, format.data + first * width_, part * width_);
            return;
        }
        switch (width_) {
        case 1:
            return CopyValues<uint8_t>(format, first, part, to);
        case 2:
            return CopyValues<uint16_t>(format, first, part, to);
        case 4:
            return CopyValues<uint32_t>(format, first, part, to);
        case 8:
            return CopyValues<uint64_t>(format, first, part, to);
        default:
            return CopyValues<duckdb::hugeint_t>(format, first, part, to);
        }
    });
}

void HostColumn::AppendTexts(const UnifiedVectorFormat &format, uint64_t count) {
    const auto *texts = reinterpret_cast<const string_t *>(format.data);
    offsets_.Append(count, sizeof(uint64_t), [&](uint8_t *to, uint64_t first, uint64_t part) {
        auto *offsets = reinterpret_cast<uint64_t *>(to);
        for (uint64_t i = 0; i < part; i++) {
            const auto index = format.sel->get_index(first + i);
            if (format.validity.RowIsValid(index)) {
                const string_t &text = texts[index];
                const auto *data = reinterpret_cast<const u8 *>(text.GetData());
                if (is_text_ && !IsUtf8(data, text.GetSize())) {
                    throw duckdb::InvalidInputException("column %s has a string that is not UTF-8", name_);
                }
                values_.AppendBytes(data, text.GetSize());
            }
            offsets[i] = values_.Size();
        }
    });
}

uint64_t HostColumn::Fingerprint() const {
    uint64_t print = rows_;
    for (const HostBuffer *buffer : {&values_, &valid_, &offsets_}) {
        constexpr uint64_t ODD = 0x9e3779b97f4a7c15; // makes the order of chunks and buffers count
        print = print * ODD + buffer->Size();
        buffer->ForEachChunk([&](const uint8_t *data, uint64_t, uint64_t bytes) {
            const std::string_view chunk(reinterpret_cast<const char *>(data), bytes);
            print = print * ODD + std::hash<std::string_view>()(chunk);
        });
    }
    return print;
}

ColumnRows HostColumn::ToDevice(Device &device, std::vector<CopiedPiece> &copies) const {
    const auto copied = [&](const HostBuffer &from) {
        const bool is_pinned = from.IsPinned();
        Memory memory = device.Allocate(from.Size(), is_pinned ? Purpose::COPIED : Purpose::WORK);
        from.ForEachChunk([&](const uint8_t *data, uint64_t offset, uint64_t bytes) {
            if (is_pinned) {
                copies.push_back({data, memory.Data() + offset, bytes});
            } else {
                device.CopyIn(memory.Data() + offset, data, bytes);
            }
        });
        return memory;
    };
    ColumnRows rows;
    rows.rows = rows_;
    rows.width = width_;
    rows.valid = valid_.Size() > 0 ? copied(valid_) : Memory();
    (width_ == 0 ? rows.chars : rows.values) = copied(values_);
    if (width_ == 0) {
        rows.offsets = copied(offsets_);
    }
    return rows;
}

} // namespace rawduck::gpu
