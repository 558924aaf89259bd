//! Table functions that work for long, in pieces: between two of them DuckDB reports progress and notices an interrupt. One row
//! tells of it at the end.
#pragma once

#include "extension/sql/row_function.hpp"

#include <atomic>
#include <memory>

namespace rawduck {

class PieceWork {
  public:
    virtual ~PieceWork() = default;
    //! Some of it; false when all is done. May throw Error.
    virtual bool DoPiece() = 0;
    virtual duckdb::vector<duckdb::Value> Row() const = 0;
    //! Lets go of what it holds; nothing is called any more but what follows.
    virtual void Release() = 0;
    //! Called by other threads meanwhile.
    double ProgressPercent() const {
        const uint64_t all = all_bytes_;
        return all == 0 ? 0 : 100 * static_cast<double>(done_bytes_) / static_cast<double>(all);
    }

  protected:
    std::atomic<uint64_t> done_bytes_{0}, all_bytes_{0};
};

struct PieceFunction {
    const char *name;
    const char *description;
    const char *example;
    duckdb::FunctionSignature signature;
    std::vector<Column> columns;
    //! May throw Error.
    std::unique_ptr<PieceWork> (*begin)(duckdb::ClientContext &context, const Arguments &arguments);
};

void RegisterPieceFunction(duckdb::ExtensionLoader &loader, PieceFunction function);

} // namespace rawduck
