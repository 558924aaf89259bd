//! QueryRunner over objects in memory: answers, refusals, limits, and damaged objects.
#include "ceph/helper/worker/query_runner.hpp"
#include "ceph/parquet/footer.hpp"
#include "ceph/parquet/parquet_summary.hpp"
#include "ceph/query/chunks.hpp"
#include "ceph/query/exact_column.hpp"
#include "common/crc32c.hpp"

#include "duckdb/main/connection.hpp"
#include "duckdb/main/valid_checker.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <unistd.h>

namespace rawduck_ceph {
namespace {

class MemoryObject : public ObjectSource {
  public:
    explicit MemoryObject(std::string bytes) : bytes(std::move(bytes)) {}

    uint64_t Size() const override { return bytes.size(); }
    void Read(uint64_t offset, size_t length, char *buffer) override {
        if (breaks) {
            throw duckdb::InternalException("a bug");
        }
        if (fails) {
            throw std::runtime_error("the disk is gone");
        }
        bytes.copy(buffer, length, offset);
    }
    bool RecordedFooterCrc(uint32_t &crc) override {
        crc = recorded_crc;
        return has_crc;
    }
    //! As a writer does.
    void RecordCrc() {
        uint32_t length;
        std::memcpy(&length, bytes.data() + bytes.size() - 8, sizeof(length));
        recorded_crc = rawduck::Crc32c(0, bytes.data() + bytes.size() - 8 - length, length + 8);
        has_crc = true;
    }
    uint64_t FooterStart() const {
        uint32_t length;
        std::memcpy(&length, bytes.data() + bytes.size() - 8, sizeof(length));
        return bytes.size() - 8 - length;
    }

    std::string bytes;
    bool fails = false;
    bool breaks = false;
    bool has_crc = false;
    uint32_t recorded_crc = 0;
};

//! A Parquet file with the rows of `query`.
std::string Parquet(const std::string &query) {
    char path[] = "/tmp/rawduck-ceph-XXXXXX";
    close(mkstemp(path));
    duckdb::DuckDB database(nullptr);
    duckdb::Connection connection(database);
    connection.Query("COPY (" + query + ") TO '" + path + "' (FORMAT parquet)")->ThrowIfError();
    std::ifstream file(path, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    std::remove(path);
    return bytes.str();
}

const char *const ROWS = "SELECT i AS a, (i % 7)::VARCHAR AS g, (i / 10)::DECIMAL(15,2) AS d, "
                         "CASE WHEN i % 3 = 0 THEN NULL ELSE (i * 0.5)::DOUBLE END AS f, DATE '2020-01-01' + "
                         "(i % 365)::INTEGER AS t "
                         "FROM range(100000) r(i)";

class QueryRunnerTest : public testing::Test {
  protected:
    static void SetUpTestSuite() { parquet = Parquet(ROWS); }

    Request Ask(std::vector<std::string> outputs, std::string filter = "") {
        Request request;
        request.duckdb_version = duckdb::DuckDB::LibraryVersion();
        request.columns = {
            {"a", "BIGINT"}, {"g", "VARCHAR"}, {"d", "DECIMAL(15,2)"}, {"f", "DOUBLE"}, {"t", "DATE"}};
        request.outputs = std::move(outputs);
        request.filter = std::move(filter);
        return request;
    }
    Reply Send(const Request &request) { return Send(EncodeRequest(request)); }
    Reply Send(const std::string &bytes) { return runner.Run(bytes.data(), bytes.size(), object); }
    static std::string Text(duckdb::DataChunk &chunk) {
        std::string text;
        for (duckdb::idx_t row = 0; row < chunk.size(); row++) {
            for (duckdb::idx_t column = 0; column < chunk.ColumnCount(); column++) {
                text += (column ? "|" : "") + chunk.GetValue(column, row).ToString();
            }
            text += "\n";
        }
        return text;
    }
    //! The rows of a reply, as text.
    std::string Rows(const Request &request, duckdb::vector<duckdb::LogicalType> types) {
        Reply reply = Send(request);
        EXPECT_EQ(reply.status, ReplyStatus::OK) << reply.text;
        ChunkReader reader(reply, std::move(types));
        std::string text;
        duckdb::DataChunk chunk;
        while (reader.Next(chunk)) {
            text += Text(chunk);
        }
        return text;
    }
    //! The same rows from a DuckDB with its default configuration.
    static std::string Stock(const std::string &query) {
        duckdb::DuckDB database(nullptr);
        duckdb::Connection connection(database);
        auto result = connection.Query("WITH rows AS (" + std::string(ROWS) + ") " + query);
        result->ThrowIfError();
        std::string text;
        while (auto chunk = result->Fetch()) {
            text += Text(*chunk);
        }
        return text;
    }

    static std::string parquet;
    QueryRunner runner{RunnerLimits()};
    MemoryObject object{parquet};
};
std::string QueryRunnerTest::parquet;

using duckdb::LogicalType;

} // namespace

TEST_F(QueryRunnerTest, ResultsEqualStockDuckDb) {
    Request request = Ask({"count(*)", "sum(d)", "min(g)", "max(t)", "sum(f)"}, "a < 10 OR a >= 99990");
    request.aggregate = true;
    EXPECT_EQ(Rows(request, {LogicalType::BIGINT, LogicalType::DECIMAL(38, 2), LogicalType::VARCHAR,
                             LogicalType::DATE, LogicalType::DOUBLE}),
              Stock("SELECT count(*), sum(d), min(g), max(t), sum(f) FROM rows WHERE a < 10 OR a >= 99990"));

    request = Ask({"g", "count(f)"}, "g IN ('1', '3', '5') AND t >= CAST('2020-06-01' AS DATE)");
    request.aggregate = true;
    request.group_count = 1;
    request.order = {{1, true, false}, {0, false, false}};
    request.limit = 2;
    EXPECT_EQ(Rows(request, {LogicalType::VARCHAR, LogicalType::BIGINT}),
              Stock("SELECT g, count(f) FROM rows WHERE g IN ('1', '3', '5') AND t >= DATE '2020-06-01' "
                    "GROUP BY g ORDER BY 2 DESC, 1 LIMIT 2"));

    request = Ask({"f", "a", "d"}, "g LIKE '%6' AND a % 2 = 0");
    request.order = {{0, false, true}, {1, true, false}};
    request.limit = 3000;
    EXPECT_EQ(Rows(request, {LogicalType::DOUBLE, LogicalType::BIGINT, LogicalType::DECIMAL(15, 2)}),
              Stock("SELECT f, a, d FROM rows WHERE g LIKE '%6' AND a % 2 = 0 "
                    "ORDER BY f NULLS FIRST, a DESC LIMIT 3000"));
}

TEST_F(QueryRunnerTest, Lz4DoesNotChangeRows) {
    Request request = Ask({"a", "f"}, "a % 3 <> 1");
    const std::string plain = Rows(request, {LogicalType::BIGINT, LogicalType::DOUBLE});
    EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 66667);
    request.format = ReplyFormat::CHUNKS_LZ4;
    Reply reply = Send(request);
    EXPECT_EQ(reply.format, ReplyFormat::CHUNKS_LZ4);
    EXPECT_LT(reply.payload.size(), reply.raw_bytes);
    EXPECT_EQ(Rows(request, {LogicalType::BIGINT, LogicalType::DOUBLE}), plain);
    // Other types than expected are an error, not a guess.
    ChunkReader reader(reply, {LogicalType::BIGINT, LogicalType::BIGINT});
    duckdb::DataChunk chunk;
    EXPECT_THROW(reader.Next(chunk), duckdb::Exception);
}

TEST_F(QueryRunnerTest, OnlyTheObjectCanBeAccessed) {
    const char *const forbidden[] = {
        "(SELECT 1)",
        "(SELECT max(a) FROM read_parquet('/etc/passwd'))",
        "read_text('/etc/passwd')",
        "getenv('HOME')",
        "current_setting('threads')",
        "now()",
        "random()",
        "repeat('x', 1000000000)",
        "list(a)",
        "[a]",
        "{'x': a}",
        "a -> 1",
        "row_number() OVER ()",
        "sum(a) OVER ()",
        "count(DISTINCT a)",
        "string_agg(g ORDER BY a)",
        "sum(a) EXPORT_STATE",
        "object.a",
        "*",
        "COLUMNS('a')",
        "a COLLATE NOCASE",
        "CAST(a AS INTEGER[])",
        "CAST(a AS STRUCT(x INTEGER))",
        "nextval('s')",
        "$1",
        "?",
        "other.main.abs(a)",
        "a, a",
        "",
        "1; SELECT 2",
    };
    for (const char *expression : forbidden) {
        Reply reply = Send(Ask({expression}));
        EXPECT_EQ(reply.status, ReplyStatus::BAD_REQUEST) << expression << ": " << reply.text;
        reply = Send(Ask({"a"}, std::string(expression) + " IS NULL"));
        EXPECT_NE(reply.status, ReplyStatus::OK) << expression;
    }
    // What follows a complete expression is never part of the statement.
    Reply reply = Send(Ask({"count(*)"}, "true) OR (SELECT true"));
    EXPECT_EQ(reply.status, ReplyStatus::BAD_REQUEST) << reply.text;
    Request request = Ask({"a"});
    request.columns[0].type = "INTEGER) FROM read_text('/etc/passwd') --";
    EXPECT_EQ(Send(request).status, ReplyStatus::BAD_REQUEST);
    request.columns[0] = {"file_name_that_is_not_there", "INTEGER"};
    EXPECT_EQ(Send(request).status, ReplyStatus::FAILED);
    EXPECT_EQ(Send(Ask({std::string(500, '(') + "a" + std::string(500, ')')})).status,
              ReplyStatus::BAD_REQUEST);
    // Brackets in texts do not count.
    std::string hidden = "true";
    for (int i = 0; i < 250; i++) {
        hidden = "(')' = g OR " + hidden + ")";
    }
    reply = Send(Ask({"count(*)"}, hidden));
    EXPECT_EQ(reply.status, ReplyStatus::BAD_REQUEST) << reply.text;
    EXPECT_NE(reply.text.find("nested"), std::string::npos) << reply.text;
    std::string shallow = "g <> '" + std::string(500, '(') + "'";
    EXPECT_EQ(Send(Ask({"a"}, shallow)).status, ReplyStatus::OK);
}

TEST_F(QueryRunnerTest, ACachedStatementRunsOnEachObject) {
    MemoryObject other{Parquet("SELECT i AS a, 'x' AS g, i::DECIMAL(15,2) AS d, i * 1.0::DOUBLE AS f, "
                               "DATE '2021-01-01' AS t FROM range(10, 20) r(i)")};
    Request request = Ask({"count(*)", "max(a)"}, "a > 0");
    request.aggregate = true;
    const std::string bytes = EncodeRequest(request);
    auto answer = [&](ObjectSource &source) {
        ChunkReader reader(runner.Run(bytes.data(), bytes.size(), source),
                           {LogicalType::BIGINT, LogicalType::BIGINT});
        duckdb::DataChunk chunk;
        return reader.Next(chunk) ? Text(chunk) : "";
    };
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(answer(object), "99999|99999\n");
        EXPECT_EQ(answer(other), "10|19\n");
    }
    // More different ones than are remembered.
    for (int i = 0; i < 200; i++) {
        const std::string constant = std::to_string(i);
        EXPECT_EQ(Rows(Ask({constant}, "a = " + constant), {LogicalType::INTEGER}), constant + "\n");
    }
}

TEST_F(QueryRunnerTest, TheTailOfAnObjectIsReadOnce) {
    Request request = Ask({"count(*)"});
    request.columns.clear();
    request.aggregate = true;
    Reply reply = Send(request);
    EXPECT_EQ(reply.status, ReplyStatus::OK) << reply.text;
    EXPECT_EQ(reply.read_bytes, ObjectWithTail::TAIL_BYTES);
}

TEST_F(QueryRunnerTest, LimitsAreEnforced) {
    Request request = Ask({"a", "f"});
    request.reply_bytes_max = 100000;
    EXPECT_EQ(Send(request).status, ReplyStatus::TOO_LARGE);
    request.reply_bytes_max = 10000000;
    EXPECT_EQ(Send(request).status, ReplyStatus::OK);
    request.time_ms_max = 0;
    EXPECT_EQ(Send(request).status, ReplyStatus::TOO_SLOW);

    request = Ask({"a"});
    request.duckdb_version = "v1.0.0";
    Reply reply = Send(request);
    EXPECT_EQ(reply.status, ReplyStatus::VERSION);
    EXPECT_NE(reply.text.find(QueryRunner::Version()), std::string::npos) << reply.text;
    std::string newer = EncodeRequest(Ask({"a"}));
    newer[4]++;
    EXPECT_EQ(Send(newer).status, ReplyStatus::VERSION);

    RunnerLimits limits;
    const std::string bytes = EncodeRequest(Ask({"a"}));
    limits.reply_bytes_max = 1000;
    QueryRunner brief(limits);
    EXPECT_EQ(brief.Run(bytes.data(), bytes.size(), object).status, ReplyStatus::TOO_LARGE);
    limits = RunnerLimits();
    limits.object_bytes_max = object.Size() - 1;
    QueryRunner small(limits);
    EXPECT_EQ(small.Run(bytes.data(), bytes.size(), object).status, ReplyStatus::TOO_LARGE);
    limits = RunnerLimits();
    limits.memory_bytes = 1 << 20;
    QueryRunner poor(limits);
    request = Ask({"a", "sum(f)"});
    request.aggregate = true;
    request.group_count = 1;
    const std::string large = EncodeRequest(request);
    EXPECT_EQ(poor.Run(large.data(), large.size(), object).status, ReplyStatus::FAILED);
}

TEST_F(QueryRunnerTest, AnExpressionThatFailsIsNoOtherError) {
    for (const char *output : {"CAST(g AS DATE)", "CAST(a + 2000000000 AS TINYINT)",
                               "like_escape(g, g, CAST(a + 10 AS VARCHAR))"}) {
        const Reply reply = Send(Ask({output}));
        EXPECT_EQ(reply.status, ReplyStatus::EXPRESSION_FAILED) << output << ": " << reply.text;
    }
    EXPECT_EQ(Send(Ask({"TRY_CAST(g AS DATE)"})).status, ReplyStatus::OK);
}

TEST_F(QueryRunnerTest, AFailedReadIsAnError) {
    object.fails = true;
    Reply reply = Send(Ask({"a"}));
    EXPECT_EQ(reply.status, ReplyStatus::FAILED);
    EXPECT_NE(reply.text.find("the disk is gone"), std::string::npos) << reply.text;
}

TEST_F(QueryRunnerTest, SummaryOfAFooter) {
    ParquetSummary summary;
    const size_t needed = SummarizeParquet(parquet.data() + parquet.size() - 8, 8, summary);
    ASSERT_EQ(needed, parquet.size() - object.FooterStart());
    ASSERT_EQ(SummarizeParquet(parquet.data() + object.FooterStart(), needed, summary), 0u);
    EXPECT_EQ(summary.rows, 100000u);
    EXPECT_EQ(summary.columns.size(), 5u);
    EXPECT_EQ(summary.columns["g"].distinct_values, 7u);
    EXPECT_EQ(summary.columns["a"].distinct_values, 0u) << "too many to count";
    uint64_t stored = 0;
    for (const auto &column : summary.columns) {
        EXPECT_GT(column.second.stored_bytes, 0u);
        stored += column.second.stored_bytes;
    }
    EXPECT_LT(stored, object.FooterStart());
    EXPECT_GT(stored, object.FooterStart() * 8 / 10) << "the rest are filters";
    EXPECT_EQ(SummarizeParquet("no", 2, summary), SIZE_MAX);
    EXPECT_EQ(SummarizeParquet(std::string(100, 'x').data(), 100, summary), SIZE_MAX);
}

TEST_F(QueryRunnerTest, APoolThatClassesCannotReadIsReported) {
    struct Unreadable final : MemoryObject {
        using MemoryObject::MemoryObject;
        void Read(uint64_t, size_t, char *) override { throw CannotReadHere("an erasure-coded pool"); }
    };
    Unreadable unreadable{parquet};
    const std::string request = EncodeRequest(Ask({"a"}));
    Reply reply = runner.Run(request.data(), request.size(), unreadable);
    EXPECT_EQ(reply.status, ReplyStatus::CANNOT_READ);
    EXPECT_EQ(reply.text, "an erasure-coded pool");
}

TEST_F(QueryRunnerTest, AnInternalErrorFailsOneRequestOnly) {
    // An internal error inside a query: here, when the data is read.
    struct Breaking final : MemoryObject {
        using MemoryObject::MemoryObject;
        void Read(uint64_t offset, size_t length, char *buffer) override {
            breaks = offset < bytes.size() - ObjectWithTail::TAIL_BYTES; // behind it is the footer
            MemoryObject::Read(offset, length, buffer);
        }
    } breaking(parquet);
    const std::string bytes = EncodeRequest(Ask({"a"}));
    EXPECT_EQ(runner.Run(bytes.data(), bytes.size(), breaking).status, ReplyStatus::FAILED);
    EXPECT_EQ(Send(bytes).status, ReplyStatus::OK);
    // A database that DuckDB itself gives up is replaced.
    duckdb::ValidChecker::Invalidate(runner.CurrentDatabase(), "a bug");
    EXPECT_EQ(Send(bytes).status, ReplyStatus::OK);
}

TEST_F(QueryRunnerTest, MutatedRequestsAreRejected) {
    Request request = Ask({"g", "sum(d)"}, "a BETWEEN 5 AND 500 AND g LIKE '%1%'");
    request.aggregate = true;
    request.group_count = 1;
    std::mt19937 random(5);
    int answered = 0;
    for (int run = 0; run < 2000; run++) {
        Request bad = request;
        std::string *const victims[] = {&bad.filter, &bad.outputs[0], &bad.outputs[1], &bad.columns[0].type};
        std::string &victim = *victims[random() % 4];
        for (int i = 0; i < 2; i++) {
            const char character = static_cast<char>(random() % 96 + 32);
            random() % 2
                ? victim[random() % victim.size()] = character
                : *victim.insert(victim.begin() + static_cast<long>(random() % victim.size()), character);
        }
        answered += Send(bad).status == ReplyStatus::OK ? 1 : 0;
    }
    EXPECT_LT(answered, 1000);
    EXPECT_EQ(Send(request).status, ReplyStatus::OK);
}

TEST_F(QueryRunnerTest, ACorruptFooterWithAChecksumIsAlwaysDetected) {
    object.RecordCrc();
    ASSERT_EQ(Send(Ask({"a"})).status, ReplyStatus::OK);
    std::mt19937 random(7);
    const uint64_t start = object.FooterStart();
    for (int run = 0; run < 400; run++) {
        const std::string good = object.bytes;
        object.bytes[start + random() % (good.size() - start)] ^= static_cast<char>(1u << random() % 8);
        EXPECT_EQ(Send(Ask({"a", "g"})).status, ReplyStatus::CORRUPT);
        object.bytes = good;
    }
}

TEST_F(QueryRunnerTest, CorruptionWithoutAChecksumKeepsTheNumberOfRows) {
    Request request = Ask({"count(*)", "count(a)"});
    request.aggregate = true;
    std::mt19937 random(11);
    const uint64_t start = object.FooterStart();
    int refused = 0;
    for (int run = 0; run < 600; run++) {
        const std::string good = object.bytes;
        // Half of the damage in the footer, half in the data.
        const uint64_t place = run % 2 ? start + random() % (good.size() - start) : random() % start;
        object.bytes[place] = static_cast<char>(random());
        Reply reply = Send(request);
        if (reply.status == ReplyStatus::OK) {
            ChunkReader reader(reply, {LogicalType::BIGINT, LogicalType::BIGINT});
            duckdb::DataChunk chunk;
            ASSERT_TRUE(reader.Next(chunk));
            EXPECT_EQ(chunk.GetValue(0, 0).ToString(), "100000");
        }
        refused += reply.status == ReplyStatus::OK ? 0 : 1;
        object.bytes = good;
    }
    EXPECT_GT(refused, 100);
    object.bytes.resize(object.bytes.size() / 2);
    EXPECT_EQ(Send(request).status, ReplyStatus::CORRUPT);
    object.bytes = "PAR1";
    EXPECT_EQ(Send(request).status, ReplyStatus::CORRUPT);
}

TEST_F(QueryRunnerTest, ConcurrentRequestsReadTheirOwnObjects) {
    QueryRunner shared{RunnerLimits()};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            MemoryObject own_object(
                Parquet("SELECT " + std::to_string(i) + "::BIGINT AS a FROM range(50000)"));
            Request request;
            request.duckdb_version = duckdb::DuckDB::LibraryVersion();
            request.columns = {{"a", "BIGINT"}};
            request.outputs = {"sum(a)"};
            request.aggregate = true;
            const std::string bytes = EncodeRequest(request);
            for (int run = 0; run < 50; run++) {
                Reply reply = shared.Run(bytes.data(), bytes.size(), own_object);
                ASSERT_EQ(reply.status, ReplyStatus::OK) << reply.text;
                ChunkReader reader(reply, {LogicalType::HUGEINT});
                duckdb::DataChunk chunk;
                ASSERT_TRUE(reader.Next(chunk));
                EXPECT_EQ(chunk.GetValue(0, 0).ToString(), std::to_string(i * 50000));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST_F(QueryRunnerTest, OtherStoredTypesAreLeftToTheClient) {
    Request request = Ask({"sum(a)"});
    request.aggregate = true;
    request.columns = {{"a", "HUGEINT"}, {"d", "DECIMAL(18,3)"}, {"f", "DOUBLE"}};
    EXPECT_EQ(Send(request).status, ReplyStatus::OK) << Send(request).text;
    for (const RequestColumn &column : std::vector<RequestColumn>{{"a", "INTEGER"},
                                                                  {"a", "DOUBLE"},
                                                                  {"g", "INTEGER"},
                                                                  {"d", "DECIMAL(14,2)"},
                                                                  {"t", "TIMESTAMP"}}) {
        request.columns = {{"a", "BIGINT"}, column};
        const Reply reply = Send(request);
        EXPECT_EQ(reply.status, ReplyStatus::FAILED) << column.name << " as " << column.type;
        EXPECT_NE(reply.text.find("stored as"), std::string::npos) << reply.text;
    }
}

TEST(ExactColumnTest, OnlyLosslessCasts) {
    using duckdb::LogicalType;
    EXPECT_TRUE(IsLosslessCast(LogicalType::TINYINT, LogicalType::HUGEINT));
    EXPECT_TRUE(IsLosslessCast(LogicalType::UINTEGER, LogicalType::BIGINT));
    EXPECT_TRUE(IsLosslessCast(LogicalType::FLOAT, LogicalType::DOUBLE));
    EXPECT_TRUE(IsLosslessCast(LogicalType::SMALLINT, LogicalType::DECIMAL(5, 0)));
    EXPECT_TRUE(IsLosslessCast(LogicalType::DECIMAL(9, 2), LogicalType::DECIMAL(18, 4)));
    EXPECT_FALSE(IsLosslessCast(LogicalType::UBIGINT, LogicalType::BIGINT));
    EXPECT_FALSE(IsLosslessCast(LogicalType::INTEGER, LogicalType::UBIGINT));
    EXPECT_FALSE(IsLosslessCast(LogicalType::BIGINT, LogicalType::DOUBLE));
    EXPECT_FALSE(IsLosslessCast(LogicalType::DOUBLE, LogicalType::FLOAT));
    EXPECT_FALSE(IsLosslessCast(LogicalType::SMALLINT, LogicalType::DECIMAL(5, 1)));
    EXPECT_FALSE(IsLosslessCast(LogicalType::DECIMAL(9, 2), LogicalType::DECIMAL(9, 3)));
    EXPECT_FALSE(IsLosslessCast(LogicalType::DATE, LogicalType::TIMESTAMP));
    EXPECT_FALSE(IsLosslessCast(LogicalType::TIMESTAMP, LogicalType::TIMESTAMP_TZ));
    EXPECT_FALSE(IsLosslessCast(LogicalType::BLOB, LogicalType::VARCHAR));
}

} // namespace rawduck_ceph
