//! The DuckDB inside the OSD: one instance for the whole process, without threads, files or extensions, with
//! its configuration locked. It answers one request at a time per calling thread.
#pragma once

#include "ceph/osd/object_file_system.hpp"
#include "ceph/osd/object_with_tail.hpp"
#include "ceph/protocol/messages.hpp"
#include "ceph/query/statement.hpp"

#include "duckdb/main/database.hpp"

#include <atomic>
#include <memory>
#include <mutex>

namespace rawduck_ceph {

struct RunnerLimits {
    uint64_t memory_bytes = 256ull * 1024 * 1024; //!< of DuckDB's buffers, for all requests together
    uint32_t running_max =
        2; //!< requests at a time; more are told that the OSD is busy, so that reads get through
    uint64_t object_bytes_max = 128ull * 1024 * 1024; //!< larger objects are refused
    uint32_t time_ms_max = 30000;                     //!< whatever a request allows itself
};

class QueryRunner {
  public:
    explicit QueryRunner(const RunnerLimits &limits);

    //! Answers an encoded request over `object`. Thread-safe; all reading happens on the calling thread.
    //! Never throws: what goes wrong is the status and the text of the reply.
    Reply Answer(const char *request, size_t length, ObjectSource &object);

    //! "rawduck object class, protocol 1, DuckDB v2.0.0".
    static std::string Version();

    //! The database that answers now, for tests.
    duckdb::DatabaseInstance &CurrentDatabase() { return *Current()->database->instance; }

  private:
    struct Instance {
        std::unique_ptr<duckdb::DuckDB> database;
        ObjectFileSystem *files = nullptr; //!< owned by the database
    };

    //! The instance to use now: a new one when DuckDB has declared the last one unusable, as it does when
    //! even a rollback fails.
    std::shared_ptr<Instance> Current();
    Reply Guarded(const char *request, size_t length, ObjectWithTail &object);
    void Execute(const Request &request, const PushedStatement &statement, ObjectWithTail &object,
                 Reply &reply);
    //! What `request` is in full. Parsing takes longer than
    //! planning, and one scan asks the same of many objects.
    std::shared_ptr<const PushedStatement> Parsed(const std::string &encoded, const Request &request);

    const RunnerLimits limits_;
    std::mutex mutex_; //!< guards what follows
    std::shared_ptr<Instance> instance_;
    std::unordered_map<std::string, std::shared_ptr<const PushedStatement>> parsed_; //!< by encoded request
    std::atomic<uint32_t> running_{0};
};

} // namespace rawduck_ceph
