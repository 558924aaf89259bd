//! A program with DuckDB linked in that exports no symbols, as the official command-line client does. Loads
//! the extension in its static form and works on a volume; the host form must refuse to load, and say why.
//!
//! usage: rawduck_static_host <static form> <host form> <empty directory>
#include "duckdb.hpp"
#include "duckdb_static_extension.h"

#include <cstdio>
#include <dlfcn.h>
#include <functional>
#include <string>

extern "C" int32_t duckdb_extension_loadable_extensions_describe(duckdb_extension_descriptor *descriptor);

namespace {

int passed = 0, failed = 0;

void Check(const std::string &what, const std::function<std::string()> &run, const std::string &expected) {
    std::string result;
    try {
        result = run();
    } catch (const std::exception &error) {
        result = error.what();
    }
    const bool good = result.find(expected) != std::string::npos;
    (good ? passed : failed)++;
    std::printf("%s %s\n", good ? "ok    " : "FAILED", what.c_str());
    if (!good) {
        std::printf("       expected: %s\n       got:      %s\n", expected.c_str(), result.c_str());
    }
}

class Session {
  public:
    Session() : database_(nullptr, Config()), connection_(database_) {}

    //! The rows, or the message of the error.
    std::string Run(const std::string &sql) {
        auto result = connection_.Query(sql);
        if (result->HasError()) {
            return result->GetError();
        }
        std::string text = "ok:";
        while (auto chunk = result->Fetch()) {
            for (duckdb::idx_t row = 0; row < chunk->size(); row++) {
                for (duckdb::idx_t column = 0; column < chunk->ColumnCount(); column++) {
                    text += " " + chunk->GetValue(column, row).ToString();
                }
            }
        }
        return text;
    }

  private:
    static duckdb::DBConfig *Config() {
        static duckdb::DBConfig config;
        config.SetOptionByName("allow_unsigned_extensions", duckdb::Value::BOOLEAN(true));
        return &config;
    }

    duckdb::DuckDB database_;
    duckdb::Connection connection_;
};

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s <static form> <host form> <empty directory>\n", argv[0]);
        return 2;
    }
    const std::string static_form = argv[1], host_form = argv[2], directory = argv[3];
    const std::string volume = directory + "/volume.rawduck", database = "nvme://" + volume + "/sales.duckdb";
    duckdb_register_static_extension(duckdb_extension_loadable_extensions_describe);

    Check(
        "the program exports no DuckDB symbols",
        [] { return dlsym(RTLD_DEFAULT, "_ZN6duckdb6DuckDB14LibraryVersionEv") ? "exported" : "hidden"; },
        "hidden");
    Check(
        "the host form refuses and points to the static form",
        [&] { return Session().Run("LOAD '" + host_form + "'"); }, "make static");
    {
        Session session;
        auto check = [&](const std::string &sql, const std::string &expected) {
            Check(sql, [&] { return session.Run(sql); }, expected);
        };
        check("LOAD '" + static_form + "'", "ok:");
        check("SELECT target FROM nvme_format('" + volume + "', size := '256M', label := 'static')",
              "ok: " + volume);
        check("ATTACH '" + database + "' AS sales", "ok:");
        check("CREATE TABLE sales.t AS SELECT range i, 'value ' || range s FROM range(300000)", "ok: 300000");
        check("INSERT INTO sales.t SELECT range, NULL FROM range(300000, 300010)", "ok: 10");
        check("SELECT count(*), max(i), max(s) FROM sales.t", "ok: 300010 300009 value 99999");
        check("ATTACH '" + database + "' AS again", "already attached");
        check("ATTACH 'nvme:///missing/x.duckdb' AS missing", "rawduck format");
        check("SET nvme_queues = 'depth=0'", "from 1 to 4096");
    }
    Session session;
    auto check = [&](const std::string &sql, const std::string &expected) {
        Check(sql, [&] { return session.Run(sql); }, expected);
    };
    check("LOAD '" + static_form + "'", "ok:");
    check("ATTACH '" + database + "' AS sales (READ_ONLY)", "ok:");
    check("SELECT count(*), max(i), max(s) FROM sales.t", "ok: 300010 300009 value 99999");
    check("SELECT label FROM nvme_volumes()", "ok: static");
    check("DETACH sales", "ok:");
    const std::string copy = "direct://" + directory + "/copy.duckdb";
    check("SELECT bytes > 0 FROM nvme_copy('" + database + "', '" + copy + "')", "ok: true");
    check("ATTACH '" + copy + "' AS copy", "ok:");
    check("SELECT count(*), max(i), max(s) FROM copy.t", "ok: 300010 300009 value 99999");
    check("SELECT count(*) FROM nvme_check('" + volume + "') WHERE severity <> 'ok'", "ok: 0");

    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
