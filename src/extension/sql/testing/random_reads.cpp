//! nvme_random_reads(path, ...): reads a file at random
//! places, as fio does with randread, to measure an engine.
#include "extension/sql/functions.hpp"
#include "extension/sql/row_function.hpp"

#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"

#include "duckdb/common/file_system.hpp"
#include "duckdb/main/client_context.hpp"
#include "volume/mount/open_file.hpp"

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

constexpr int64_t READS_MAX = 100000000, BYTES_MAX = 32 * 1024 * 1024, THREADS_MAX = 1024;

uint64_t Between(const Arguments &arguments, const char *name, int64_t least, int64_t most) {
    const Value &value = arguments.Named(name);
    const int64_t number = value.IsNull() ? -1 : value.GetValue<int64_t>();
    if (number < least || number > most) {
        throw Error(ErrorCode::INVALID, std::string(name) + " must be from " + std::to_string(least) +
                                            " to " + std::to_string(most) + ": " + value.ToString());
    }
    return static_cast<uint64_t>(number);
}

//! What one thread does, and what came of it.
struct Reader {
    uint64_t reads = 0;
    uint64_t first_words = 0; //!< sum of the first 8 bytes of each read: the same for the same file and seed
    std::exception_ptr failure;

    void Run(duckdb::FileHandle &file, uint64_t bytes, uint64_t places, uint64_t seed) {
        try {
            AlignedBuffer buffer(bytes);
            std::mt19937_64 random(seed);
            for (uint64_t i = 0; i < reads; i++) {
                file.Read(buffer.Data(), bytes, random() % places * bytes);
                uint64_t word = 0;
                memcpy(&word, buffer.Data(), sizeof(word));
                first_words += word;
            }
        } catch (...) {
            failure = std::current_exception();
        }
    }
};

//! All at once. Returns the seconds that it took; throws the first failure.
double RunAll(std::vector<Reader> &readers, duckdb::FileHandle &file, uint64_t bytes, uint64_t places,
              uint64_t seed) {
    std::vector<std::thread> threads;
    const auto begin = std::chrono::steady_clock::now();
    std::exception_ptr failure; // no more threads: those that were begun have to end
    try {
        for (size_t i = 0; i < readers.size(); i++) {
            threads.emplace_back([&, i] { readers[i].Run(file, bytes, places, seed + i); });
        }
    } catch (...) {
        failure = std::current_exception();
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    for (const Reader &reader : readers) {
        if (reader.failure) {
            std::rethrow_exception(reader.failure);
        }
    }
    return seconds.count();
}

Rows RandomReadsRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string path = arguments.Text(0, "path");
    const uint64_t reads = Between(arguments, "reads", 1, READS_MAX);
    const uint64_t bytes = Between(arguments, "bytes", 512, BYTES_MAX);
    const uint64_t seed = Between(arguments, "seed", 0, INT64_MAX);
    std::vector<Reader> readers(Between(arguments, "threads", 1, THREADS_MAX));
    auto file = duckdb::FileSystem::GetFileSystem(context).OpenFile(
        path, duckdb::FileFlags::FILE_FLAGS_READ | duckdb::FileFlags::FILE_FLAGS_PARALLEL_ACCESS);
    const uint64_t places = static_cast<uint64_t>(file->GetFileSize()) / bytes;
    if (places == 0) {
        throw Error(ErrorCode::INVALID,
                    path + ": it is shorter than one read of " + std::to_string(bytes) + " bytes");
    }
    for (size_t i = 0; i < readers.size(); i++) {
        readers[i].reads = reads / readers.size() + (i < reads % readers.size() ? 1 : 0);
    }
    const double seconds = RunAll(readers, *file, bytes, places, seed);
    uint64_t first_words = 0;
    for (const Reader &reader : readers) {
        first_words += reader.first_words;
    }
    return {{Value::UBIGINT(reads), Value::UBIGINT(reads * bytes), Value::DOUBLE(seconds),
             Value::UBIGINT(first_words)}};
}

} // namespace

void RegisterRandomReadsFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("path", LogicalType::VARCHAR);
    signature.AddKeywordOnly("reads", LogicalType::BIGINT, Value::BIGINT(4096));
    signature.AddKeywordOnly("bytes", LogicalType::BIGINT, Value::BIGINT(4096));
    signature.AddKeywordOnly("threads", LogicalType::BIGINT, Value::BIGINT(1));
    signature.AddKeywordOnly("seed", LogicalType::BIGINT, Value::BIGINT(1));
    RegisterRowFunction(
        loader,
        {"nvme_random_reads",
         "Reads a file at random places, each thread one read after the other: what an engine and its "
         "queues cost",
         "SELECT reads / seconds FROM nvme_random_reads('nvme:///dev/nvme0n1/x.duckdb', threads := 16)",
         signature,
         {{"reads", LogicalType::UBIGINT},
          {"bytes", LogicalType::UBIGINT},
          {"seconds", LogicalType::DOUBLE},
          {"first_words", LogicalType::UBIGINT}},
         RandomReadsRow});
}

} // namespace rawduck
