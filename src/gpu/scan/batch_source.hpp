//! What gives batches, one after the other.
#pragma once

#include "gpu/pipeline/batch.hpp"
#include "gpu/scan/output_column.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace rawduck::gpu {

struct ScanOptions {
    std::string device;      //!< as OpenDevice takes it
    uint64_t batch_rows = 0; //!< at least 1
    OutputOptions output;
};

//! Thread-safe: one call at a time makes progress. Closed by its destructor.
class BatchSource {
  public:
    enum class Step { BATCH, END, NOT_YET };

    virtual ~BatchSource() = default;
    BatchSource() = default;
    BatchSource(const BatchSource &) = delete;
    BatchSource &operator=(const BatchSource &) = delete;

    //! Once, before the first Next, from outside of the context. Throws what is wrong with the source.
    virtual void Begin() {}
    //! NOT_YET, after some TURN: call again; that is for callers who look for signals now and then. Called from outside of the context,
    //! whose lock it takes. Throws DuckDB's exceptions and Error; the source is of no use afterwards.
    virtual Step Next(std::shared_ptr<Batch> &batch) = 0;

  protected:
    static constexpr std::chrono::milliseconds TURN{50};
};

} // namespace rawduck::gpu
