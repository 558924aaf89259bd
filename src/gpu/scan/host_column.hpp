//! A column in host memory that DuckDB's vectors are written into, in the layout that a device takes as it is: values
//! one behind the other, a byte a row for NULL, offsets and characters of strings.
#pragma once

#include "gpu/device/host_buffer.hpp"
#include "gpu/pipeline/decode_rows.hpp"
#include "gpu/plan/planned_column.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace duckdb {
class Vector;
struct UnifiedVectorFormat;
} // namespace duckdb

namespace rawduck::gpu {

//! Used by one thread at a time.
class HostColumn {
  public:
    //! Of a type that has a kind.
    HostColumn(const TableColumn &column, const std::shared_ptr<HostMemory> &memory);

    //! Copies the vector's first `count` values. Throws InvalidInputException where text is not UTF-8.
    void Append(const duckdb::Vector &vector, uint64_t count);

    uint64_t Rows() const { return rows_; }
    //! Of its values, NULLs and characters.
    uint64_t Bytes() const { return values_.Size() + valid_.Size() + offsets_.Size(); }
    uint64_t CharacterBytes() const { return width_ == 0 ? values_.Size() : 0; }

    //! Of all its bytes: two columns of one type that differ have the same one with a probability of 2^-64 or so.
    uint64_t Fingerprint() const;

    //! Of memory, with what is not used of it.
    uint64_t HeldBytes() const { return values_.HeldBytes() + valid_.HeldBytes() + offsets_.HeldBytes(); }
    //! Copies it. Of what lies in memory from which the device copies by itself, it is only said what Device::CopyInPinned has
    //! to copy: until that is done, this must live.
    ColumnRows ToDevice(Device &device, std::vector<CopiedPiece> &copies) const;

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
