#include "gpu/scan/host_column.hpp"

#include "gpu/decode/utf8.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/common/types/hugeint.hpp"
#include "duckdb/common/types/string_type.hpp"
#include "duckdb/common/types/vector.hpp"
#include "duckdb/common/vector/unified_vector_format.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
#include <utility>

namespace rawduck::gpu {
namespace {

using duckdb::string_t;
using duckdb::UnifiedVectorFormat;

constexpr uint64_t LEAST_CAPACITY = 4096;

//! Those that are NULL become zeros: what DuckDB leaves in their place is undefined.
template <class T> void CopyValues(const UnifiedVectorFormat &format, uint64_t count, uint8_t *to) {
    const auto *from = reinterpret_cast<const T *>(format.data);
    auto *values = reinterpret_cast<T *>(to);
    for (uint64_t i = 0; i < count; i++) {
        const auto index = format.sel->get_index(i);
        values[i] = format.validity.RowIsValid(index) ? from[index] : T();
    }
}

} // namespace

void HostMemoryUse::Add(uint64_t bytes) {
    const uint64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
}

HostBuffer::HostBuffer(HostBuffer &&other) noexcept
    : use_(other.use_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

HostBuffer::~HostBuffer() {
    std::free(data_);
    use_->Remove(capacity_);
}

uint8_t *HostBuffer::Extend(uint64_t bytes) {
    if (bytes > capacity_ - size_) {
        const uint64_t capacity = std::max({LEAST_CAPACITY, 2 * capacity_, size_ + bytes});
        auto *data = static_cast<uint8_t *>(std::realloc(data_, capacity));
        if (!data) {
            throw std::bad_alloc();
        }
        data_ = data;
        use_->Add(capacity - capacity_);
        capacity_ = capacity;
    }
    uint8_t *added = data_ + size_;
    size_ += bytes;
    return added;
}

HostColumn::HostColumn(const TableColumn &column, const std::shared_ptr<HostMemoryUse> &use)
    : name_(column.name), width_(WidthOf(*column.kind)),
      is_text_(column.type.id() == duckdb::LogicalTypeId::VARCHAR), values_(use), valid_(use), offsets_(use) {
    if (width_ == 0) {
        std::memset(offsets_.Extend(sizeof(uint64_t)), 0, sizeof(uint64_t));
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
            std::memset(valid_.Extend(count), 1, count);
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
        std::memset(valid_.Extend(rows_ + first), 1, rows_ + first);
    }
    uint8_t *valid = valid_.Extend(count - first);
    for (uint64_t i = first; i < count; i++) {
        valid[i - first] = format.validity.RowIsValid(format.sel->get_index(i)) ? 1 : 0;
    }
}

void HostColumn::AppendValues(const UnifiedVectorFormat &format, uint64_t count) {
    uint8_t *to = values_.Extend(count * width_);
    if (format.validity.CannotHaveNull() && !format.sel->IsSet()) {
        std::memcpy(to, format.data, count * width_);
        return;
    }
    switch (width_) {
    case 1:
        return CopyValues<uint8_t>(format, count, to);
    case 2:
        return CopyValues<uint16_t>(format, count, to);
    case 4:
        return CopyValues<uint32_t>(format, count, to);
    case 8:
        return CopyValues<uint64_t>(format, count, to);
    default:
        return CopyValues<duckdb::hugeint_t>(format, count, to);
    }
}

void HostColumn::AppendTexts(const UnifiedVectorFormat &format, uint64_t count) {
    auto *offsets = reinterpret_cast<uint64_t *>(offsets_.Extend(count * sizeof(uint64_t)));
    const auto *texts = reinterpret_cast<const string_t *>(format.data);
    for (uint64_t i = 0; i < count; i++) {
        const auto index = format.sel->get_index(i);
        if (format.validity.RowIsValid(index)) {
            const string_t &text = texts[index];
            const auto *data = reinterpret_cast<const u8 *>(text.GetData());
            if (is_text_ && !IsUtf8(data, text.GetSize())) {
                throw duckdb::InvalidInputException("column %s has a string that is not UTF-8", name_);
            }
            if (text.GetSize() > 0) {
                std::memcpy(values_.Extend(text.GetSize()), data, text.GetSize());
            }
        }
        offsets[i] = values_.Size();
    }
}

uint64_t HostColumn::Fingerprint() const {
    uint64_t print = rows_;
    for (const HostBuffer *buffer : {&values_, &valid_, &offsets_}) {
        constexpr uint64_t ODD = 0x9e3779b97f4a7c15; // makes the order of the three count
        const std::string_view bytes(reinterpret_cast<const char *>(buffer->Data()), buffer->Size());
        print = print * ODD + std::hash<std::string_view>()(bytes);
    }
    return print;
}

ColumnRows HostColumn::ToDevice(Device &device) const {
    ColumnRows rows;
    rows.rows = rows_;
    rows.width = width_;
    const auto copied = [&](const HostBuffer &from) {
        Memory memory = device.Allocate(from.Size());
        device.CopyIn(memory.Data(), from.Data(), from.Size());
        return memory;
    };
    rows.valid = valid_.Size() > 0 ? copied(valid_) : Memory();
    (width_ == 0 ? rows.chars : rows.values) = copied(values_);
    if (width_ == 0) {
        rows.offsets = copied(offsets_);
    }
    return rows;
}

} // namespace rawduck::gpu
