//! libFuzzer target: what reaches the OSD or comes back from it, before DuckDB sees it. The first byte
//! chooses the decoder; checksums are made right, so that what is behind them is reached.
#include "ceph/parquet/footer.hpp"
#include "ceph/parquet/object_statistics.hpp"
#include "ceph/parquet/parquet_summary.hpp"
#include "ceph/protocol/bytes.hpp"
#include "ceph/protocol/messages.hpp"
#include "common/crc32c.hpp"

#include <cstdlib>
#include <cstring>

using namespace rawduck_ceph;

namespace {

std::string Sealed(const char *magic, const char *data, size_t length) {
    Frame frame = {};
    std::memcpy(frame.magic, magic, sizeof(frame.magic));
    frame.version = PROTOCOL_VERSION;
    frame.body_bytes = static_cast<uint32_t>(length);
    frame.crc = rawduck::Crc32c(rawduck::Crc32c(0, &frame, sizeof(frame)), data, length);
    return std::string(reinterpret_cast<const char *>(&frame), sizeof(frame)) + std::string(data, length);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length) {
    if (length == 0) {
        return 0;
    }
    const char *data = reinterpret_cast<const char *>(input) + 1;
    length--;
    uint16_t version = 0;
    try {
        if (input[0] % 3 == 0) {
            const std::string bytes = Sealed("RDQR", data, length);
            DecodeRequest(bytes.data(), bytes.size(), version);
        } else if (input[0] % 3 == 1) {
            const std::string bytes = Sealed("RDQA", data, length);
            DecodeReply(bytes.data(), bytes.size(), version);
        } else {
            CheckMetadata(data, length, 1 << 20);
            const auto footer = static_cast<uint32_t>(length);
            std::string tail(data, length);
            tail.append(reinterpret_cast<const char *>(&footer), sizeof footer).append("PAR1");
            ParquetSummary summary;
            SummarizeParquet(tail.data(), tail.size(), summary);
            const std::string file = "PAR1" + tail;
            const timespec modified = {};
            const auto statistics = StatisticsOf(file.data(), file.size());
            const std::string attribute = EncodeStatistics(statistics, file.size(), modified);
            if (DecodeStatistics(attribute, file.size(), modified).size() > statistics.size()) {
                std::abort();
            }
            std::string malformed(data, length);
            const uint32_t crc = rawduck::Crc32c(0, data, length);
            malformed.append(reinterpret_cast<const char *>(&crc), sizeof crc);
            DecodeStatistics(malformed, 0, modified);
        }
    } catch (const ProtocolError &) {
    }
    return 0;
}
