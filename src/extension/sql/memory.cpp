//! nvme_memory(): the memory that DuckDB reads into.
#include "extension/memory/duckdb_allocator.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/row_function.hpp"

#include "common/memory/bounce_chunks.hpp"
#include "common/memory/buffers/buffer_memory.hpp"
#include "io/engine/ring/ring_buffers.hpp"

#include "duckdb/main/client_context.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

//! NULL before the first one.
Value MeanMicroseconds(uint64_t ns) {
    return ns == 0 ? Value(LogicalType::DOUBLE) : Value::DOUBLE(static_cast<double>(ns) / 1e3);
}

Rows MemoryRows(duckdb::ClientContext &context, const Arguments &) {
    std::string why_not;
    const bool in_use = UsesBufferMemory(*context.db, why_not);
    const BufferMemory *const memory = BufferMemory::OfProcess();
    const BufferMemory::Counts counts = memory ? memory->Count() : BufferMemory::Counts{};
    const RingBuffers::Counts registered = RingBuffers::Count();
    return {{Value::BOOLEAN(in_use), TextOrNull(why_not), Value::UBIGINT(counts.blocks.used_bytes),
             Value::UBIGINT(counts.blocks.kept_bytes), Value::UBIGINT(counts.staging.used_bytes),
             Value::UBIGINT(counts.staging.kept_bytes), Value(counts.pages.huge ? "huge" : "small"),
             Value::UBIGINT(counts.pages.huge_chunks), Value::UBIGINT(counts.pages.small_chunks),
             MeanMicroseconds(counts.pages.huge_ns), MeanMicroseconds(counts.pages.small_ns),
             Value::UBIGINT(registered.bytes), Value::UBIGINT(registered.commands),
             TextOrNull(registered.obstacle), Value::UBIGINT(BounceChunks::HeldBytes())}};
}

} // namespace

void RegisterMemoryFunction(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(
        loader,
        {"nvme_memory",
         "The memory that DuckDB's blocks are in and that it reads ahead into, of the whole process (setting "
         "nvme_buffer_memory)",
         "SELECT blocks, blocks_kept, pages FROM nvme_memory()",
         duckdb::FunctionSignature(),
         {{"in_use", LogicalType::BOOLEAN, "Whether this instance of DuckDB allocates from it"},
          {"why_not", LogicalType::VARCHAR, "If not, why; otherwise NULL"},
          {"blocks", LogicalType::UBIGINT, "Bytes of blocks in use, which DuckDB counts, too"},
          {"blocks_kept", LogicalType::UBIGINT,
           "Bytes of free blocks that are still in memory, at most a sixteenth of what is available, or an "
           "eighth of those in use within 16 and 128 MiB; given back when nobody needed them for a second or "
           "two"},
          {"staging", LogicalType::UBIGINT, "Bytes that are being read ahead into, which DuckDB counts, too"},
          {"staging_kept", LogicalType::UBIGINT,
           "Bytes for that purpose that are free and still in memory, between those in use, too. At most a "
           "sixteenth of what is available within 32 and 128 MiB; given back likewise, the first 32 MiB in "
           "whole chunks"},
          {"pages", LogicalType::VARCHAR, "The kind of pages that new memory gets: huge or small"},
          {"huge_chunks", LogicalType::UBIGINT, "Chunks of 2 MiB that were asked for in huge pages"},
          {"small_chunks", LogicalType::UBIGINT, "Chunks of 2 MiB that were asked for in small pages"},
          {"huge_us", LogicalType::DOUBLE,
           "Microseconds of processor time until a chunk has huge pages, on average; NULL where the system "
           "leaves no choice"},
          {"small_us", LogicalType::DOUBLE, "The same for small pages"},
          {"registered", LogicalType::UBIGINT,
           "Bytes, of this memory and of that for bouncing and spilling, that io_uring rings know, so that "
           "commands "
           "need not name their pages. Counted for each ring, as against the limit of locked memory (ulimit "
           "-l)"},
          {"registered_commands", LogicalType::UBIGINT, "Commands that have used them"},
          {"not_registered", LogicalType::VARCHAR,
           "Why a ring did not take memory when that was last tried; NULL if none has refused"},
          {"bounce", LogicalType::UBIGINT,
           "Bytes of memory between DuckDB's and devices that cannot transfer to it, for all targets. At "
           "most 8 MiB more "
           "than is in use"}},
         MemoryRows});
}

} // namespace rawduck
