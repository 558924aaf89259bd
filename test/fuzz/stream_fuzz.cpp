//! libFuzzer target: streams that are received. The input is a list of records whose headers and checksums are made right, so that
//! what lies behind these is reached; and it is taken as a stream as it is.
#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "volume/backup/stream/stream_reader.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace rawduck;

namespace {

class Bytes final : public ByteSource {
  public:
    explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
    uint64_t Read(void *data, uint64_t length) override {
        const uint64_t count = std::min<uint64_t>(length, bytes_.size() - at_);
        memcpy(data, bytes_.data() + at_, count);
        at_ += count;
        return count;
    }
    const std::string &Name() const override { return name_; }

  private:
    const std::string bytes_, name_ = "fuzz";
    size_t at_ = 0;
};

void Require(bool promise) {
    if (!promise) {
        abort();
    }
}

//! What is handed out lies within the files, and behind what came before.
void Read(const std::string &stream) {
    Bytes source(stream);
    try {
        StreamReader reader(source);
        const StreamHeader &header = reader.Header();
        Require(!header.files.empty() && header.files.size() <= STREAM_FILES_MAX &&
                header.files[0].ending.empty());
        StreamPosition at = header.from;
        uint64_t bytes = 0;
        while (const std::optional<StreamPiece> piece = reader.Next()) {
            Require(piece->range.file < header.files.size() && !(piece->Begin() < at));
            Require(piece->range.length > 0 &&
                    piece->range.offset + piece->range.length <= header.files[piece->range.file].size);
            bytes += piece->data ? piece->range.length : 0;
            Require(!piece->data || std::count(piece->data, piece->data + piece->range.length, '\0') >= 0);
            at = piece->End();
        }
        Require(bytes == header.data_bytes && reader.Bytes() == stream.size());
        const std::string token = ResumeToken(header, header.from);
        Require(ParseResumeToken(header, token) == header.from);
        StreamHeader again;
        std::string problem;
        Require(DecodeBegin(EncodeBegin(header), again, problem) && again.ContinuesAs(header));
    } catch (const Error &) {
    }
}

} // namespace

// Records are a byte for the type, two for the length of the payload, and that. An END without a payload is made right.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Read(std::string(reinterpret_cast<const char *>(data), size));
    std::string stream;
    uint64_t sequence = 0, data_bytes = 0;
    while (size >= 3) {
        const auto type = static_cast<StreamRecordType>(data[0]);
        const size_t length = std::min<size_t>(data[1] | data[2] << 8, size - 3);
        std::string payload(reinterpret_cast<const char *>(data) + 3, length);
        data += 3 + length;
        size -= 3 + length;
        if (type == StreamRecordType::END && payload.empty()) {
            payload = EncodeEnd({sequence, data_bytes, Crc32c(0, stream.data(), stream.size())});
        }
        data_bytes += type == StreamRecordType::DATA && length > 16 ? length - 16 : 0;
        stream += SealStreamRecord(type, sequence++, 7, payload) + payload;
    }
    Read(stream);
    return 0;
}
