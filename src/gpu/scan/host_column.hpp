//! A column in host memory that DuckDB's vectors are written into, in the layout that a device takes as it is: values
//! one behind the other, a byte a row for NULL, offsets and characters of strings.
#pragma once

#include "gpu/pipeline/decode_rows.hpp"
#include "gpu/plan/planned_column.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace duckdb {
class Vector;
struct UnifiedVectorFormat;
} // namespace duckdb

namespace rawduck::gpu {

//! Bytes of host memory in use, and the most there ever were. Thread-safe.
class HostMemoryUse {
  public:
    void Add(uint64_t bytes);
    void Remove(uint64_t bytes) { now_.fetch_sub(bytes, std::memory_order_relaxed); }
    uint64_t Peak() const { return peak_.load(std::memory_order_relaxed); }

  private:
    std::atomic<uint64_t> now_{0}, peak_{0};
};

//! Bytes that grow at their end. Aligned to 16 bytes.
class HostBuffer {
  public:
    explicit HostBuffer(std::shared_ptr<HostMemoryUse> use) : use_(std::move(use)) {}
    HostBuffer(HostBuffer &&other) noexcept;
    HostBuffer &operator=(HostBuffer &&) = delete;
    ~HostBuffer();

    //! Contents undefined. Throws std::bad_alloc.
    uint8_t *Extend(uint64_t bytes);
    const uint8_t *Data() const { return data_; }
    uint64_t Size() const { return size_; }

  private:
    std::shared_ptr<HostMemoryUse> use_;
    uint8_t *data_ = nullptr;
    uint64_t size_ = 0;
    uint64_t capacity_ = 0;
};

//! Used by one thread at a time.
class HostColumn {
  public:
    //! Of a type that has a kind.
    HostColumn(const TableColumn &column, const std::shared_ptr<HostMemoryUse> &use);

    //! Copies the vector's first `count` values. Throws InvalidInputException where text is not UTF-8.
    void Append(const duckdb::Vector &vector, uint64_t count);

    uint64_t Rows() const { return rows_; }
    //! Of its values, NULLs and characters.
    uint64_t Bytes() const { return values_.Size() + valid_.Size() + offsets_.Size(); }
    uint64_t CharacterBytes() const { return width_ == 0 ? values_.Size() : 0; }

    //! Of all its bytes: two columns of one type that differ have the same one with a probability of 2^-64 or so.
    uint64_t Fingerprint() const;

    ColumnRows ToDevice(Device &device) const;

  private:
    void AppendValid(const duckdb::UnifiedVectorFormat &format, uint64_t count);
    void AppendValues(const duckdb::UnifiedVectorFormat &format, uint64_t count);
    void AppendTexts(const duckdb::UnifiedVectorFormat &format, uint64_t count);

    std::string name_;
    uint64_t width_; //!< 0: strings
    bool is_text_;
    uint64_t rows_ = 0;
    HostBuffer values_;  //!< of strings: the characters
    HostBuffer valid_;   //!< empty as long as none is NULL
    HostBuffer offsets_; //!< of strings: where they end, behind a 0
};

} // namespace rawduck::gpu
