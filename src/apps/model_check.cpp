#include "apps/model_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "apps/serve_sandbox.h"
#include "engine/loading/loaded_model.h"

namespace skein::apps {
namespace {

// Two stamps differ for two files, and for one file before and after it was written to.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  bool operator==(const FileStamp&) const = default;
};

std::vector<FileStamp> stamps_of(const std::string& path) {
  std::vector<FileStamp> stamps;
  for (const std::string& file : files_of_model(path)) {
    struct stat info = {};
    if (::stat(file.c_str(), &info) != 0) continue;
    stamps.push_back(
        {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
  }
  return stamps;
}

// The kernel's choice when memory is short, before the server. Without it the check still holds.
void volunteer_for_oom() {
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!::write(fd, "1000", 4);
  ::close(fd);
}

Status check_alone(const std::string& path, uint32_t max_context) {
  SKEIN_TRY(enter_sandbox({.read = folders_of_model(path)}).status());
  return check_model(path, max_context);
}

}  // namespace

Result<std::unique_ptr<SideProcess>> start_model_checker(const SandboxRules& rules,
                                                         uint32_t max_context) {
  SideProcess::Options options;
  options.name = "skein-check";
  options.prepare = [&rules]() -> Status {
    volunteer_for_oom();
    SandboxRules reading = rules;
    reading.write.clear();
    reading.devices.clear();
    return enter_sandbox(reading).status();
  };
  options.work = [max_context](const std::string& path) { return check_alone(path, max_context); };
  return SideProcess::start(options);
}

SchedulerManager::Loader with_check(SchedulerManager::Loader load, SideProcess& checker,
                                    std::string draft_model) {
  return [load = std::move(load), &checker, draft_model = std::move(draft_model)](
             const ModelConfig& config,
             const SchedulerManager::MakeRoom& make_room) -> Result<ServedModelParts> {
    std::vector<std::string> paths = {config.path};
    if (!draft_model.empty()) paths.push_back(draft_model);
    std::vector<std::vector<FileStamp>> before;
    for (const std::string& path : paths) {
      SKEIN_TRY(check_within_sandbox(path));
      before.push_back(stamps_of(path));
      SKEIN_TRY(checker.run(path));
    }
    Result<ServedModelParts> parts = load(config, make_room);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!parts.ok() || stamps_of(paths[i]) == before[i]) continue;
      return data_loss("{}: was replaced or written to while it was being loaded; load it again",
                       paths[i]);
    }
    return parts;
  };
}

}  // namespace skein::apps
