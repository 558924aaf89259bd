//! Batches: columns of one length in the layout that Arrow and DLPack describe, put together from row groups.
#pragma once

#include "gpu/pipeline/decode_rows.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <string>

namespace rawduck::gpu {

//! As DLPack names types of numbers.
struct NumberType {
    uint8_t code = 0; //!< 0 int, 1 unsigned, 2 float, 6 bool
    uint8_t bits = 0; //!< 0: DLPack has no such type
};

//! How a column comes out.
struct OutputColumn {
    std::string name;
    std::string arrow_format; //!< of the Arrow C data interface
    NumberType number;
    std::string why_no_number; //!< where DLPack has no such type: what to do instead
    Conversion conversion = Conversion::NONE;
    uint64_t stored_width = 0; //!< of a decoded value; 0: strings
    uint64_t width = 0;        //!< of a value in the batch
    uint32_t scale = 0;        //!< of TO_FLOAT64
    //! What DLPack's consumers find in place of NULL, `width` bytes; unset: a column with NULLs is refused.
    std::optional<std::array<uint8_t, 8>> null_value;
};

struct BatchColumn {
    Memory values;   //!< `width` bytes each, booleans a byte; strings: offsets of 32 bits, one more than rows
    Memory chars;    //!< of strings
    Memory bits;     //!< booleans as Arrow wants them
    Memory validity; //!< bits as Arrow wants them; empty: none is NULL
    uint64_t null_count = 0;
};

//! What was done for a column of a row group.
struct RouteTaken {
    int64_t row_group; //!< -1: rows of the transaction itself
    size_t column;
    uint64_t rows;
    std::string reason; //!< why DuckDB scanned it; empty: decoded
};

struct BatchReport {
    DecodeCounters counters;
    std::vector<RouteTaken>
        routes; //!< of what was read for this batch; the next one may begin with the rest of it
    uint64_t pruned_row_groups = 0;
    const char *path = "";           //!< how blocks were read (BlockSource::Path)
    bool is_query = false;           //!< rows of a query, not of a table
    uint64_t peak_waiting_bytes = 0; //!< of a query: the most that it had computed and nobody had taken
    double milliseconds = 0;
};

//! Immutable. Whoever is handed its memory shares it, and waits for `ready`, or is made to.
struct Batch {
    Batch() = default;
    ~Batch();
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;

    uint64_t rows = 0;
    std::shared_ptr<const std::vector<OutputColumn>> layout;
    std::vector<BatchColumn> columns;
    BatchReport report;
    std::shared_ptr<Device> device;
    std::shared_ptr<Event> ready;
    //! Somebody may use it in a stream that the default stream knows nothing of: its memory is given back when all is done.
    //! So is whoever takes it by Arrow or by __cuda_array_interface__, for want of a way to say in which stream.
    mutable std::atomic<bool> is_used_elsewhere{false};
};

//! Rows of a row group that wait for their batch.
struct QueuedRows {
    std::vector<ColumnRows> columns;
    //! For each column whether only the rows that `listed_rows` names count; the others have no more than those.
    std::vector<bool> is_listed;
    Memory listed_rows; //!< numbers of 32 bits
    uint64_t rows = 0;  //!< that count
};

//! Used by one thread at a time.
class BatchBuilder {
  public:
    BatchBuilder(std::shared_ptr<const std::vector<OutputColumn>> layout, std::shared_ptr<Device> device);

    void Add(QueuedRows rows);
    uint64_t QueuedCount() const { return queued_count_; }
    //! Of the rows that wait, the first ones: at most `row_limit`, and as many as their strings of a column have at
    //! most `string_limit` bytes together. Throws Error where one string alone has more.
    std::shared_ptr<Batch> Build(uint64_t row_limit, uint64_t string_limit = MOST_STRING_BYTES);

    //! Offsets of strings have 31 bits.
    static constexpr uint64_t MOST_STRING_BYTES = (1ull << 31) - 1;

  private:
    struct Part {
        const QueuedRows *rows;
        RowSelection selection;             //!< without device_rows, which differ between columns
        std::vector<uint64_t> string_bytes; //!< of each column
    };

    std::vector<Part> ChooseParts(uint64_t row_limit, std::vector<uint64_t> string_room);
    //! Takes fewer rows where strings of a column would exceed their room, and what they take from it.
    void Shorten(Part &part, std::vector<uint64_t> &string_room) const;
    BatchColumn BuildColumn(size_t index, const std::vector<Part> &parts, uint64_t rows);
    void GatherColumn(size_t index, const std::vector<Part> &parts, const Memory &values) const;
    void GatherStrings(size_t index, const std::vector<Part> &parts, uint64_t rows,
                       BatchColumn &column) const;
    //! A byte a row; empty where none is NULL.
    Memory GatherValid(size_t index, const std::vector<Part> &parts, uint64_t rows) const;
    void Drop(uint64_t rows);

    std::shared_ptr<const std::vector<OutputColumn>> layout_;
    std::shared_ptr<Device> device_;
    std::deque<QueuedRows> queue_;
    uint64_t taken_ = 0; //!< rows of the first in the queue that a batch has already
    uint64_t queued_count_ = 0;
};

} // namespace rawduck::gpu
