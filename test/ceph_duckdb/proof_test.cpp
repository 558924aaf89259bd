//! What proves that the class computes what the plan does: the round trip of expressions, and the settings.
#include "ceph/pushdown/proof/built_in_functions.hpp"
#include "ceph/pushdown/proof/neutral_settings.hpp"
#include "ceph/pushdown/proof/round_trip.hpp"

#include "duckdb/main/connection.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/parser/parsed_data/create_scalar_function_info.hpp"
#include "duckdb/planner/planner.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {
namespace {

using duckdb::LogicalType;

class ProofTest : public testing::Test {
  protected:
    void SetUp() override {
        NoteBuiltInFunctions(*database.instance);
        Run("CREATE TABLE t (i INTEGER, k BIGINT, d DOUBLE, s VARCHAR, c VARCHAR COLLATE NOCASE, dt DATE, m "
            "DECIMAL(9,2))");
        schema = {{"i", "k", "d", "s", "c", "dt", "m"},
                  {LogicalType::INTEGER, LogicalType::BIGINT, LogicalType::DOUBLE, LogicalType::VARCHAR,
                   LogicalType::VARCHAR, LogicalType::DATE, LogicalType::DECIMAL(9, 2)}};
    }
    void Run(const std::string &sql) { connection.Query(sql)->ThrowIfError(); }

    //! How `sql`, bound again, differs from `expression` in a plan over the table.
    std::string Difference(const std::string &expression, const std::string &sql) {
        auto statements = connection.ExtractStatements("SELECT " + expression + " FROM t");
        std::string difference;
        connection.context->RunFunctionInTransaction([&] {
            duckdb::Planner planner(*connection.context);
            planner.CreatePlan(std::move(statements[0]));
            difference = RoundTripDifference(
                *connection.context, *planner.plan->expressions[0], sql, schema,
                [](const duckdb::Expression &reference) { return reference.GetName().GetIdentifierName(); });
        });
        return difference;
    }
    std::string InTheWay() {
        std::string setting;
        connection.context->RunFunctionInTransaction([&] { setting = SettingInTheWay(*connection.context); });
        return setting;
    }

    duckdb::DuckDB database{nullptr};
    duckdb::Connection connection{database};
    RequestSchema schema;
};

} // namespace

TEST_F(ProofTest, TheSameExpressionInOtherWords) {
    const char *const same[][2] = {
        {"i + 1", "i + CAST(1 AS INTEGER)"},
        {"i > 2 + 3", "(i > CAST(5 AS INTEGER))"},
        {"i BETWEEN 2 AND 4", "((i >= 2) AND (i <= 4))"},
        {"i = 1 AND (k = 2 AND d > 0.5)", "(i = 1) AND (k = 2) AND (d > CAST('0.5' AS DOUBLE))"},
        {"extract(year FROM dt)", "year(dt)"},
        {"date_trunc('month', dt)", "\"system\".main.date_trunc('month', dt)"},
        {"regexp_matches(s, 'a', 'i')", "regexp_matches(s, 'a', 'i')"},
        {"m + 1.5", "CAST(CAST(m AS DECIMAL(10,2)) + CAST(1.50 AS DECIMAL(10,2)) AS DECIMAL(10,2))"},
        {"CASE WHEN i IN (1, 2) THEN s END", "CASE WHEN i IN (1, 2) THEN s ELSE CAST(NULL AS VARCHAR) END"},
    };
    for (const auto &[expression, sql] : same) {
        EXPECT_EQ(Difference(expression, sql), "") << expression;
    }
}

TEST_F(ProofTest, OtherExpressions) {
    const char *const other[][2] = {
        {"i", "k"},                                                // another column
        {"i + 1", "i + CAST(1 AS BIGINT)"},                        // another overload
        {"i", "CAST(i AS BIGINT)"},                                // another type
        {"CAST(s AS INTEGER)", "TRY_CAST(s AS INTEGER)"},          // NULL in place of an error
        {"i > 2", "i >= 2"},                                       // another function
        {"i > 2", "i > 3"},                                        // another constant
        {"d / -0.0::DOUBLE", "d / CAST('0.0' AS DOUBLE)"},         // an equal one that divides differently
        {"i = 1 AND k = 2", "i = 1 OR k = 2"},                     // another conjunction
        {"i = 1 AND k = 2", "i = 1"},                              // a part is missing
        {"regexp_matches(s, 'a', 'i')", "regexp_matches(s, 'a')"}, // other options
        {"i IN (1, 2)", "i NOT IN (1, 2)"},                        // the opposite
        {"c = 'a'", "c = 'a'"},                                    // a collation, lost in SQL
        {"date_trunc('month', dt)", "date_trunc('year', dt)"},     // another argument
        {"CASE WHEN i = 1 THEN s END", "CASE WHEN i = 1 THEN 'x' END"}, // another branch
        {"m + 1.5", "CAST(CAST(m AS DECIMAL(10,2)) - CAST(1.50 AS DECIMAL(10,2)) AS DECIMAL(10,2))"},
        {"m + 1.5", "TRY_CAST(CAST(m AS DECIMAL(10,2)) + CAST(1.50 AS DECIMAL(10,2)) AS DECIMAL(10,2))"},
        {"m + 1.5", "CAST(CAST(m AS DECIMAL(11,3)) + CAST(1.50 AS DECIMAL(11,3)) AS DECIMAL(10,2))"},
        {"i", "nosuch"},
        {"i", "i, k"},
        {"i", "random()"},
        {"i", "i FROM t"},
    };
    for (const auto &[expression, sql] : other) {
        EXPECT_NE(Difference(expression, sql), "") << expression << ": " << sql;
    }
}

TEST_F(ProofTest, AUsersFunctionIsNotTheBuiltInOne) {
    EXPECT_EQ(Difference("lower(s)", "lower(s)"), "");
    Run("CREATE MACRO lower(x) AS upper(x)");
    EXPECT_NE(Difference("\"system\".main.lower(s)", "lower(s)"), "");
}

TEST_F(ProofTest, AUsersOverloadIsNotABuiltInOne) {
    const char *const sql = "substring(s, i, i)";
    EXPECT_EQ(Difference(sql, sql), "");
    duckdb::ScalarFunction function(
        duckdb::Identifier("substring"), {LogicalType::VARCHAR, LogicalType::INTEGER, LogicalType::INTEGER},
        LogicalType::VARCHAR, [](duckdb::DataChunk &, duckdb::ExpressionState &, duckdb::Vector &) {});
    duckdb::CreateScalarFunctionInfo info(function);
    connection.context->RegisterFunction(info);
    NoteBuiltInFunctions(*database.instance); // as another connection that loads the extension does
    EXPECT_NE(Difference(sql, sql).find("not one of DuckDB's own"), std::string::npos)
        << Difference(sql, sql);
    EXPECT_EQ(Difference("substring(s, k, k)", "substring(s, k, k)"), "") << "it is still there";
}

TEST_F(ProofTest, EverySettingIsClassified) {
    auto result = connection.Query("SELECT name FROM duckdb_settings(include_all := true)");
    result->ThrowIfError();
    size_t names = 0;
    while (auto chunk = result->Fetch()) {
        for (duckdb::idx_t row = 0; row < chunk->size(); row++, names++) {
            std::string name = chunk->GetValue(0, row).ToString();
            if (auto alias = duckdb::DBConfig::GetOptionByName(duckdb::Identifier(name))) {
                name = alias->name;
            }
            EXPECT_TRUE(IsClassifiedSetting(name)) << name << ": say in neutral_settings.cpp what it changes";
        }
    }
    EXPECT_GT(names, 150u);
}

TEST_F(ProofTest, SettingsThatChangeTheMeaningAreInTheWay) {
    EXPECT_EQ(InTheWay(), "");
    Run("SET threads = 2");
    Run("SET SESSION integer_division = false");
    EXPECT_EQ(InTheWay(), "");
    Run("SET SESSION integer_division = true");
    EXPECT_EQ(InTheWay(), "the setting integer_division is 'true', which changes the division of integers");
    Run("RESET integer_division");
    Run("SET GLOBAL disabled_optimizers = 'top_n'");
    EXPECT_NE(InTheWay().find("disabled_optimizers"), std::string::npos);
    Run("SET GLOBAL disabled_optimizers = ''");
    EXPECT_EQ(InTheWay(), "");
    for (const char *none : {"binary", "C", "posix", ""}) {
        Run(std::string("SET default_collation = '") + none + "'");
        EXPECT_EQ(InTheWay(), "") << none;
    }
    Run("SET default_collation = 'nocase'");
    EXPECT_EQ(InTheWay(), "the setting default_collation is 'nocase', which changes comparisons of texts");
}

TEST_F(ProofTest, AnUnknownSettingIsInTheWay) {
    duckdb::DBConfig::GetConfig(*database.instance)
        .AddExtensionOption("of_an_extension", "", LogicalType::INTEGER, duckdb::Value::INTEGER(3));
    EXPECT_EQ(InTheWay(), "");
    Run("SET of_an_extension = 3");
    EXPECT_EQ(InTheWay(), "") << "it has its default";
    Run("SET of_an_extension = 4");
    EXPECT_EQ(InTheWay(), "the setting of_an_extension is '4', of which it is not known what it changes");
}

} // namespace rawduck_ceph
