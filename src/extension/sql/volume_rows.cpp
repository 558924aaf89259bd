#include "extension/sql/volume_rows.hpp"

#include "extension/file_systems/settings.hpp"

#include "common/error.hpp"
#include "volume/requests/here_or_ask.hpp"

#include "duckdb/common/serializer/binary_deserializer.hpp"
#include "duckdb/common/serializer/binary_serializer.hpp"
#include "duckdb/common/serializer/memory_stream.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {

namespace {

using Produce = Rows (*)(const Volume &volume);

Produce ProducerOf(const std::string &function) {
    static constexpr struct {
        const char *name;
        Produce produce;
    } FUNCTIONS[] = {{"nvme_info", InfoOf},
                     {"nvme_files", FilesOf},
                     {"nvme_snapshots", SnapshotsOf},
                     {"nvme_stats", StatsOf}};
    for (const auto &known : FUNCTIONS) {
        if (function == known.name) {
            return known.produce;
        }
    }
    throw Error(ErrorCode::UNSUPPORTED,
                function + "(): the process that has the volume open for writing does not know "
                           "it; is it of the same version of rawduck?");
}

//! All values of all rows, one behind the other, behind the number of rows and of columns.
std::string Encoded(const Rows &rows) {
    duckdb::MemoryStream stream;
    duckdb::BinarySerializer serializer(stream);
    serializer.Begin();
    serializer.WriteProperty<uint64_t>(100, "rows", rows.size());
    duckdb::vector<duckdb::Value> values;
    for (const auto &row : rows) {
        values.insert(values.end(), row.begin(), row.end());
    }
    serializer.WriteProperty(101, "values", values);
    serializer.End();
    return std::string(duckdb::const_char_ptr_cast(stream.GetData()), stream.GetPosition());
}

Rows Decoded(std::string text) {
    duckdb::MemoryStream stream(duckdb::data_ptr_cast(&text[0]), text.size());
    duckdb::BinaryDeserializer deserializer(stream);
    deserializer.Begin();
    const auto count = deserializer.ReadProperty<uint64_t>(100, "rows");
    auto values = deserializer.ReadProperty<duckdb::vector<duckdb::Value>>(101, "values");
    deserializer.End();
    const size_t columns = count == 0 ? 0 : values.size() / count;
    Rows rows(columns == 0 ? 0 : count);
    for (size_t i = 0; i < rows.size() * columns; i++) {
        rows[i / columns].push_back(std::move(values[i]));
    }
    return rows;
}

std::string Describe(const Volume &volume, const std::string &function) {
    return Encoded(ProducerOf(function)(volume));
}

} // namespace

Rows RowsOfVolume(duckdb::ClientContext &context, const std::string &target, const std::string &function) {
    const auto opener = duckdb::ClientData::Get(context).file_opener.get();
    return Decoded(
        DoHereOrAsk(target, {WriterRequest::Kind::DESCRIBE, 0, function, ""}, MountOptionsOf(opener)));
}

void AnswerAboutVolumes() {
    SetDescriber(Describe);
}

} // namespace rawduck
