#include "ceph/helper/worker/query_runner.hpp"

#include "ceph/parquet/footer.hpp"
#include "ceph/protocol/bytes.hpp"
#include "ceph/query/chunks.hpp"
#include "ceph/query/exact_column.hpp"

#include "duckdb/common/virtual_file_system.hpp"
#include "duckdb/main/connection.hpp"
#include "duckdb/main/query_result_stream.hpp"
#include "duckdb/main/valid_checker.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <new>

namespace rawduck_ceph {

namespace {

//! Parsed statements that are cached, and the longest request whose statement is.
constexpr size_t PARSED_MAX = 64;
constexpr size_t PARSED_REQUEST_BYTES_MAX = 16 * 1024;

//! Ends a request with this status; caught by QueryRunner::Run.
struct Rejection {
    ReplyStatus status;
    std::string text;
};

uint64_t ThreadCpuUs() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000000 + static_cast<uint64_t>(time.tv_nsec) / 1000;
}

//! Disables everything that a request does not need. Returns the database's only file system.
ObjectFileSystem *LockDown(const RunnerLimits &limits, duckdb::DBConfig &config) {
    auto object_files = duckdb::make_uniq<ObjectFileSystem>();
    ObjectFileSystem *files = object_files.get();
    config.file_system = duckdb::make_uniq<duckdb::VirtualFileSystem>(std::move(object_files));
    config.options.use_temporary_directory = false;
    // No background threads: the object can only be read on the thread of its request.
    config.SetOptionByName("threads", duckdb::Value::BIGINT(1));
    config.SetOptionByName("async_threads", duckdb::Value::BIGINT(0));
    config.SetOptionByName("memory_limit", duckdb::Value(std::to_string(limits.memory_bytes) + "B"));
    config.SetOptionByName("enable_external_file_cache", duckdb::Value::BOOLEAN(false));
    config.SetOptionByName("autoload_known_extensions", duckdb::Value::BOOLEAN(false));
    config.SetOptionByName("autoinstall_known_extensions", duckdb::Value::BOOLEAN(false));
    config.SetOptionByName("allow_community_extensions", duckdb::Value::BOOLEAN(false));
    return files;
}

//! The settings with which the database itself would not start.
void LockConfiguration(duckdb::DuckDB &database) {
    duckdb::Connection connection(database);
    // The gap: what DuckDB reads must be what the object class has handed over (parquet/column_ranges.cpp).
    for (const char *sql :
         {"SET GLOBAL parquet_prefetch_column_gap = 16384", "SET disabled_filesystems = 'LocalFileSystem'",
          "SET lock_configuration = true"}) {
        connection.Query(sql)->ThrowIfError();
    }
}

ReplyStatus StatusOf(const duckdb::ErrorData &error) {
    switch (error.Type()) {
    case duckdb::ExceptionType::PERMISSION:
    case duckdb::ExceptionType::PARSER:
    case duckdb::ExceptionType::SYNTAX:
        return ReplyStatus::BAD_REQUEST;
    default:
        return ReplyStatus::FAILED;
    }
}

//! Of an error of a query that runs. One about a value holds for the whole query: other objects probably have such
//! values, too, and the client asks about no more of them.
ReplyStatus StatusOfExecution(const duckdb::ErrorData &error) {
    switch (error.Type()) {
    case duckdb::ExceptionType::CONVERSION:
    case duckdb::ExceptionType::OUT_OF_RANGE:
    case duckdb::ExceptionType::INVALID_INPUT:
    case duckdb::ExceptionType::SYNTAX: // of a pattern that a row has
        return ReplyStatus::EXPRESSION_FAILED;
    default:
        return StatusOf(error);
    }
}

} // namespace

QueryRunner::QueryRunner(const RunnerLimits &limits) : limits_(limits) {
    CurrentInstance();
}

std::shared_ptr<QueryRunner::Instance> QueryRunner::CurrentInstance() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!instance_ || duckdb::ValidChecker::IsInvalidated(*instance_->database->instance)) {
        auto fresh = std::make_shared<Instance>();
        duckdb::DBConfig config;
        fresh->files = LockDown(limits_, config);
        fresh->database = std::make_unique<duckdb::DuckDB>(nullptr, &config);
        RegisterExactColumn(*fresh->database->instance);
        LockConfiguration(*fresh->database);
        instance_ = std::move(fresh);
    }
    return instance_;
}

std::string QueryRunner::Version() {
    return "rawduck object class, protocol " + std::to_string(PROTOCOL_VERSION) + ", DuckDB " +
           duckdb::DuckDB::LibraryVersion();
}

Reply QueryRunner::Run(const char *request, size_t length, ObjectSource &object) {
    const uint64_t start_us = ThreadCpuUs();
    Reply reply;
    ObjectWithTail counted(object);
    try {
        reply = CheckAndExecute(request, length, counted);
    } catch (const Rejection &rejection) {
        reply.status = rejection.status;
        reply.text = rejection.text;
    } catch (const ProtocolError &error) {
        reply.status = ReplyStatus::BAD_REQUEST;
        reply.text = error.what();
    } catch (const CannotReadHere &error) {
        reply.status = ReplyStatus::CANNOT_READ;
        reply.text = error.what();
    } catch (const std::bad_alloc &) {
        reply.status = ReplyStatus::FAILED;
        reply.text = "out of memory";
    } catch (const std::exception &error) {
        duckdb::ErrorData data(error);
        reply.status = StatusOf(data);
        reply.text = data.Message();
    }
    reply.read_bytes = counted.ReadBytes();
    reply.duckdb_version = duckdb::DuckDB::LibraryVersion();
    reply.cpu_us = ThreadCpuUs() - start_us;
    return reply;
}

Reply QueryRunner::CheckAndExecute(const char *data, size_t length, ObjectWithTail &object) {
    uint16_t version = 0;
    Request request = DecodeRequest(data, length, version);
    if (version != PROTOCOL_VERSION || request.duckdb_version != duckdb::DuckDB::LibraryVersion()) {
        throw Rejection{ReplyStatus::VERSION, "the class is: " + Version()};
    }
    if (object.Size() > limits_.object_bytes_max) {
        throw Rejection{ReplyStatus::TOO_LARGE,
                        "the object is larger than " + std::to_string(limits_.object_bytes_max) + " bytes"};
    }
    std::string problem = CheckFooter(object);
    if (!problem.empty()) {
        throw Rejection{ReplyStatus::CORRUPT, problem};
    }
    Reply reply;
    Execute(request, *ParseCached(std::string(data, length), request), object, reply);
    return reply;
}

std::shared_ptr<const PushedStatement> QueryRunner::ParseCached(const std::string &encoded,
                                                                const Request &request) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = parsed_.find(encoded);
        if (found != parsed_.end()) {
            return found->second;
        }
    }
    auto statement = std::make_shared<const PushedStatement>(request);
    if (encoded.size() <= PARSED_REQUEST_BYTES_MAX) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (parsed_.size() >= PARSED_MAX) {
            parsed_.clear();
        }
        parsed_[encoded] = statement;
    }
    return statement;
}

void QueryRunner::Execute(const Request &request, const PushedStatement &statement, ObjectWithTail &object,
                          Reply &reply) {
    using Clock = std::chrono::steady_clock;
    const auto deadline =
        Clock::now() + std::chrono::milliseconds(std::min(request.time_ms_max, limits_.time_ms_max));
    const uint64_t bytes_max = std::min(request.reply_bytes_max, limits_.reply_bytes_max);

    const std::shared_ptr<Instance> instance = CurrentInstance();
    ObjectFileSystem::Mount mount(*instance->files, object);
    duckdb::Connection connection(*instance->database);
    auto submitted = connection.Submit(statement.ForFile(mount.Path()));
    submitted->ThrowIfError();
    duckdb::QueryResultStream<> stream(std::move(submitted));
    ChunkWriter writer(bytes_max);
    for (;;) {
        duckdb::unique_ptr<duckdb::DataChunk> chunk;
        auto state = stream.TryFetch(chunk);
        if (chunk) {
            if (!writer.Add(*chunk)) {
                throw Rejection{ReplyStatus::TOO_LARGE,
                                "the answer is longer than " + std::to_string(bytes_max) + " bytes"};
            }
            continue;
        }
        if (state == duckdb::QueryResultState::FINISHED) {
            break;
        }
        if (state != duckdb::QueryResultState::EXECUTION_ERROR) {
            // A task processes a few dozen chunks, so checking between tasks is precise enough.
            if (Clock::now() > deadline) {
                throw Rejection{ReplyStatus::TOO_SLOW, "the answer took longer than it may"};
            }
            state = stream.ExecuteTask();
        }
        if (state == duckdb::QueryResultState::EXECUTION_ERROR) {
            const duckdb::ErrorData &error = stream.GetErrorObject();
            throw Rejection{StatusOfExecution(error), error.Message()};
        }
    }
    writer.Finish(request.format, reply);
}

} // namespace rawduck_ceph
