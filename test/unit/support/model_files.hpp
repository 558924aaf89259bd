//! Files of a volume beside what they must hold: random operations on both.
#pragma once

#include "common/error.hpp"
#include "support/volume_fixture.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace rawduck {

//! The names below one directory, used by one thread. With `failures`, operations may fail, and what they
//! leave is taken over when it makes sense.
class ModelFiles {
  public:
    ModelFiles(std::shared_ptr<Volume> volume, std::string directory, uint64_t seed, uint64_t bytes_max)
        : volume_(std::move(volume)), directory_(std::move(directory)), random_(seed), bytes_max_(bytes_max) {
    }

    //! Called around each operation; may throw what the operation may.
    std::function<void(const std::function<void()> &)> guard;

    void Step() {
        const std::string name = Name();
        switch (random_() % 14) {
        case 0:
        case 1:
            return Do({name}, [&] { Handle(name); });
        case 2:
        case 3:
        case 4:
            return Append(name);
        case 5:
        case 6:
            return Write(name);
        case 7:
            return Truncate(name);
        case 8:
            return Move(name, Name());
        case 9:
            return random_() % 3 == 0 ? Remove(name) : Sync(name);
        case 10:
            return random_() % 2 == 0 ? Close(name) : Directory();
        case 11:
            return Temporary();
        case 12:
            return ReadBack(name);
        default:
            return Sync(name);
        }
    }

    void CheckAll() {
        for (const auto &[name, content] : now_) {
            ASSERT_TRUE(volume_->FileExists(name)) << name;
            ASSERT_TRUE(ReadAll(*volume_, name) == content) << name;
        }
    }
    //! What a mount finds after a power cut: all that was acknowledged, and nothing that was never there.
    void CheckDurable(Volume &found) const {
        std::set<std::string> names;
        for (const FileInfo &info : found.Files()) {
            if (info.kind != FileKind::DIRECTORY && info.name.rfind(directory_ + "/f", 0) == 0) {
                names.insert(info.name);
            }
        }
        for (const auto &[name, state] : durable_) {
            const bool there = names.erase(name) != 0;
            ASSERT_TRUE(there || state.maybe_gone) << name << " is lost";
            if (there) {
                const std::string content = ReadAll(found, name);
                ASSERT_TRUE(std::find(state.contents.begin(), state.contents.end(), content) !=
                            state.contents.end())
                    << name << " holds something else: " << content.size() << " bytes, and "
                    << state.contents.back().size() << " were last written";
            }
        }
        for (const std::string &name : names) {
            ASSERT_TRUE(now_.count(name) != 0) << name << " came back";
        }
    }
    //! All handles are gone; the volume was mounted again, or lives on.
    void Reopen(std::shared_ptr<Volume> volume) {
        volume_ = std::move(volume);
        for (const auto &[name, content] : now_) {
            Acknowledge(name);
        }
    }
    void CloseAll() { handles_.clear(); }
    //! So that the volume can be unmounted.
    void Release() { volume_.reset(); }
    //! After a kill: what was found is what there is.
    void Adopt(std::shared_ptr<Volume> volume) {
        CheckDurable(*volume);
        volume_ = std::move(volume);
        now_.clear();
        durable_.clear();
        for (const FileInfo &info : volume_->Files()) {
            if (info.kind != FileKind::DIRECTORY && info.name.rfind(directory_ + "/f", 0) == 0) {
                now_[info.name] = ReadAll(*volume_, info.name);
                Acknowledge(info.name);
            }
        }
    }
    void RemoveAll() {
        CloseAll();
        for (const auto &[name, content] : now_) {
            volume_->Remove(name);
        }
        volume_->RemoveDirectory(directory_, true); // what operations that failed half way have left
        now_.clear();
        durable_.clear();
    }
    //! A closed file of this content, for others to take.
    std::string Finished(const std::string &content) {
        const std::string name = directory_ + "/finished";
        Close(name);
        OpenMode mode = WriteMode();
        mode.truncate = true;
        auto file = volume_->Open(name, mode);
        file->Append(content.data(), content.size());
        file->Close();
        return name;
    }

  private:
    //! What a power cut may leave of a file.
    struct Durable {
        std::vector<std::string> contents;
        bool maybe_gone = false;
    };

    std::string Name() { return directory_ + "/f" + std::to_string(random_() % 5); }
    void Acknowledge(const std::string &name) { durable_[name] = Durable{{now_[name]}, false}; }

    // With failures, and on a full volume, a publish may happen in any operation, or not.
    void Allow(const std::string &name) {
        const auto entry = durable_.find(name);
        const auto now = now_.find(name);
        if (guard && entry != durable_.end() && now != now_.end()) {
            entry->second.contents.push_back(now->second);
        } else if (guard && now != now_.end()) {
            durable_[name] = Durable{{now->second}, true};
        }
    }
    void Do(const std::vector<std::string> &names, const std::function<void()> &operation) {
        if (!guard) {
            return operation();
        }
        for (const std::string &name : names) {
            Allow(name);
        }
        try {
            guard(operation);
        } catch (const std::exception &) {
            for (const std::string &name : names) {
                TakeOver(name);
            }
        }
    }
    void TakeOver(const std::string &name) {
        handles_.erase(name);
        const bool there = volume_->FileExists(name);
        if (there) {
            now_[name] = ReadAll(*volume_, name);
            Allow(name);
            if (volume_->Info()
                    .poisoned.empty()) { // the last close may have failed: the next one makes up for it
                handles_[name] = volume_->Open(name, WriteMode());
            }
        } else {
            now_.erase(name);
        }
        if (durable_.count(name) != 0) {
            durable_[name].maybe_gone = durable_[name].maybe_gone || !there || removing_;
        }
        removing_ = false;
    }

    OpenFile &Handle(const std::string &name) {
        auto &handle = handles_[name];
        if (!handle) {
            static const FileKind kinds[] = {FileKind::DATABASE, FileKind::WAL, FileKind::OTHER};
            handle = volume_->Open(name, WriteMode(kinds[random_() % 3]));
            now_[name];
        }
        return *handle;
    }
    std::string Bytes() {
        const uint64_t length = random_() % 3 == 0 ? random_() % 60 : random_() % (bytes_max_ / 4);
        return RandomBytes(random_, 1 + length);
    }
    void Append(const std::string &name) {
        const std::string bytes = Bytes();
        Do({name}, [&] {
            OpenFile &file = Handle(name);
            if (now_[name].size() + bytes.size() <= bytes_max_) {
                EXPECT_EQ(file.Append(bytes.data(), bytes.size()), now_[name].size());
                now_[name] += bytes;
            }
        });
    }
    void Write(const std::string &name) {
        std::string bytes = Bytes();
        Do({name}, [&] {
            OpenFile &file = Handle(name);
            std::string &content = now_[name];
            uint64_t offset = random_() % (content.size() + 9000);
            if (random_() % 2 == 0) {
                offset = AlignDown(offset, ALLOCATION_UNIT_BYTES);
                bytes.resize(AlignUp(bytes.size(), ALLOCATION_UNIT_BYTES), 'p');
            }
            if (offset + bytes.size() <= bytes_max_) {
                file.Write(bytes.data(), bytes.size(), offset);
                content.resize(std::max<size_t>(content.size(), offset + bytes.size()), '\0');
                content.replace(offset, bytes.size(), bytes);
            }
        });
    }
    void Truncate(const std::string &name) {
        Do({name}, [&] {
            OpenFile &file = Handle(name);
            const uint64_t size = random_() % (now_[name].size() + 1);
            file.Truncate(size);
            now_[name].resize(size);
            Acknowledge(name);
        });
    }
    void Sync(const std::string &name) {
        Do({name}, [&] {
            Handle(name).Sync();
            Acknowledge(name);
        });
    }
    void Close(const std::string &name) {
        Do({name}, [&] {
            if (handles_.count(name) != 0) {
                handles_[name]->Close();
                handles_.erase(name);
                Acknowledge(name);
            }
        });
    }
    void Move(const std::string &from, const std::string &to) {
        if (now_.count(from) == 0 || from == to) {
            return;
        }
        const bool was_there = durable_.count(from) != 0;
        const Durable before = was_there ? durable_[from] : Durable{{now_[from]}, false};
        removing_ = true;
        if (guard) { // as long as it is not known whether it was moved
            Allow(to);
            durable_[to].maybe_gone = durable_[to].maybe_gone || now_.count(to) == 0;
            durable_[to].contents.insert(durable_[to].contents.end(), before.contents.begin(),
                                         before.contents.end());
            durable_[to].contents.push_back(now_[from]);
        }
        Do({from, to}, [&] {
            volume_->Move(from, to);
            handles_.erase(to);
            if (handles_.count(from) != 0) {
                handles_[to] = std::move(handles_[from]);
                handles_.erase(from);
            }
            now_[to] = now_[from];
            now_.erase(from);
            Durable moved = before;
            moved.maybe_gone = false;
            moved.contents.push_back(now_[to]); // moving makes a new file durable as it is
            durable_[to] = std::move(moved);
            durable_.erase(from);
        });
        removing_ = false;
    }
    void Remove(const std::string &name) {
        if (now_.count(name) == 0) {
            return;
        }
        removing_ = true;
        Do({name}, [&] {
            volume_->Remove(name);
            now_.erase(name);
            durable_.erase(name);
            handles_.erase(name);
        });
        removing_ = false;
    }
    void Directory() {
        const std::string name = directory_ + "/d";
        Do({}, [&] {
            volume_->MakeDirectory(name + "/e");
            volume_->Open(name + "/e/file", WriteMode())->Append("x", 1);
            volume_->RemoveDirectory(name, true);
        });
    }
    void Temporary() {
        const std::string name = directory_ + "/spilled";
        const std::string bytes = Bytes();
        Do({}, [&] {
            auto file = volume_->Open(name, WriteMode(FileKind::TEMP));
            file->Write(bytes.data(), bytes.size(), 0);
            std::string read(bytes.size(), '?');
            EXPECT_EQ(file->Read(&read[0], read.size(), 0), bytes.size());
            EXPECT_TRUE(read == bytes);
            file->Close();
            volume_->Remove(name);
        });
    }
    void ReadBack(const std::string &name) {
        Do({name}, [&] {
            if (now_.count(name) != 0) {
                EXPECT_TRUE(ReadAll(*volume_, name) == now_[name]) << name;
            }
        });
    }

    std::shared_ptr<Volume> volume_;
    const std::string directory_;
    std::mt19937_64 random_;
    const uint64_t bytes_max_;
    bool removing_ = false;
    std::map<std::string, std::string> now_;
    std::map<std::string, Durable> durable_;
    std::map<std::string, std::unique_ptr<OpenFile>> handles_;
};

} // namespace rawduck
