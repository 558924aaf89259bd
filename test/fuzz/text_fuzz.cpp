//! libFuzzer target: everything that reads text a user typed, namely paths, sizes, settings and file names. Whatever
//! the input, it is taken or refused with Error, and what is taken keeps its promises.
#include "common/error.hpp"
#include "common/text/size.hpp"
#include "volume/mount/queue_options.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/path.hpp"
#include "volume/volume.hpp"

#include <cstdlib>

using namespace rawduck;

namespace {

void Require(bool promise) {
    if (!promise) {
        abort();
    }
}

//! A path in its normal form stays as it is, and no component of it climbs.
void TryVolumePath(const std::string &text) {
    const VolumePath path = SplitVolumePath(text);
    const VolumePath again = SplitVolumePath(path.ToString());
    Require(again.target == path.target && again.file == path.file);
    for (const std::string &component : PathComponents(path.file)) {
        Require(component != ".." && component != "." && !component.empty());
    }
}

void TrySize(const std::string &text) {
    const uint64_t bytes = ParseSize(text, "the size");
    Require(ParseSize(SizeText(bytes), "the same size") == bytes);
}

void TryQueues(const std::string &text) {
    MountOptions options, again;
    ParseQueueOptions(text, options);
    ParseQueueOptions(QueueOptionsText(options), again);
    Require(QueueOptionsText(again) == QueueOptionsText(options));
}

void TryName(const std::string &text) {
    CheckFileName("memory:fuzz", text);
    Require(!text.empty() && text.size() <= 255 && text.find('\0') == std::string::npos);
    Require(text.front() != '/' && text.back() != '/');
}

template <class Function> void Tolerate(Function function, const std::string &text) {
    try {
        function(text);
    } catch (const Error &error) {
        Require(error.what()[0] != '\0');
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string text(reinterpret_cast<const char *>(data), size);
    Tolerate(TryVolumePath, text);
    Tolerate(TryVolumePath, VOLUME_SCHEME + text);
    Tolerate(TrySize, text);
    Tolerate(TryQueues, text);
    Tolerate([](const std::string &setting) { ParsePlacement(setting); }, text);
    Tolerate(TryName, text);
    Tolerate([](const std::string &path) { StripDirectScheme(path); }, text);
    Tolerate([](const std::string &path) { PathComponents(path); }, text);
    return 0;
}
