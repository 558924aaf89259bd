//! Runs pushed queries, with one DuckDB instance for the process: without threads, files or extensions, and
//! with its configuration locked. A request runs on the thread that calls.
#pragma once

#include "ceph/helper/worker/object_file_system.hpp"
#include "ceph/helper/worker/object_with_tail.hpp"
#include "ceph/protocol/messages.hpp"
#include "ceph/query/statement.hpp"

#include "duckdb/main/database.hpp"

#include <memory>
#include <mutex>

namespace rawduck_ceph {

struct RunnerLimits {
    uint64_t memory_bytes = 128ull * 1024 * 1024;     //!< of DuckDB's buffers
    uint64_t reply_bytes_max = 32ull * 1024 * 1024;   //!< of a payload; limits the request's own limit
    uint64_t object_bytes_max = 128ull * 1024 * 1024; //!< larger objects are rejected
    //! Limits the request's own limit. Checked between tasks only; the supervisor ends a process that does
    //! not get so far.
    uint32_t time_ms_max = 10000;
};

class QueryRunner {
  public:
    explicit QueryRunner(const RunnerLimits &limits);

    //! Runs an encoded request on `object`. Thread-safe; reads the object on the calling thread only. Does
    //! not throw: errors are the status and the text of the reply.
    Reply Run(const char *request, size_t length, ObjectSource &object);

    //! "rawduck object class, protocol 2, DuckDB v2.0.0".
    static std::string Version();

    //! The current instance, for tests.
    duckdb::DatabaseInstance &CurrentDatabase() { return *CurrentInstance()->database->instance; }

  private:
    struct Instance {
        std::unique_ptr<duckdb::DuckDB> database;
        ObjectFileSystem *files = nullptr; //!< owned by the database
    };

    //! Creates a new instance when DuckDB has invalidated the last one, as it does when a rollback fails.
    std::shared_ptr<Instance> CurrentInstance();
    Reply CheckAndExecute(const char *request, size_t length, ObjectWithTail &object);
    void Execute(const Request &request, const PushedStatement &statement, ObjectWithTail &object,
                 Reply &reply);
    //! Cached: parsing takes longer than planning, and a scan sends the same request for many objects.
    std::shared_ptr<const PushedStatement> ParseCached(const std::string &encoded, const Request &request);

    const RunnerLimits limits_;
    //! Guards instance_ and parsed_. Held while an instance is created, which takes DuckDB's locks.
    std::mutex mutex_;
    std::shared_ptr<Instance> instance_;
    std::unordered_map<std::string, std::shared_ptr<const PushedStatement>> parsed_; //!< by encoded request
};

} // namespace rawduck_ceph
