#include "extension/file_systems/settings_cache.hpp"

#include "duckdb/main/config.hpp"

namespace rawduck {
namespace {

class EmptiedAtTheEnd {
  public:
    explicit EmptiedAtTheEnd(duckdb::CachedGlobalSettings &copy) : copy_(copy) {}
    ~EmptiedAtTheEnd() { copy_ = duckdb::CachedGlobalSettings(); }

  private:
    duckdb::CachedGlobalSettings &copy_;
};

} // namespace

void KeepSettingsReadable(const duckdb::DatabaseInstance &database) {
    // GetSettings makes DuckDB's object, so this one is destroyed first.
    thread_local const EmptiedAtTheEnd copy(database.config.user_settings.GetSettings());
}

} // namespace rawduck
