#include "apps/serve_sandbox.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/folder.h"
#include "server/store/store.h"

namespace skein::apps {
namespace {

namespace fs = std::filesystem;

// Read at run time by the C library (time zones, names of hosts, memory, cores), by OpenSSL and by
// base/ (memory, cores, cgroups).
constexpr const char* kSystem[] = {"/dev/null",
                                   "/dev/random",
                                   "/dev/urandom",
                                   "/dev/zero",
                                   "/etc/gai.conf",
                                   "/etc/host.conf",
                                   "/etc/hosts",
                                   "/etc/ld.so.cache",
                                   "/etc/localtime",
                                   "/etc/nsswitch.conf",
                                   "/etc/resolv.conf",
                                   "/etc/ssl/openssl.cnf",
                                   "/lib",
                                   "/lib64",
                                   "/proc/cpuinfo",
                                   "/proc/meminfo",
                                   "/proc/self",
                                   "/proc/stat",
                                   "/sys/devices/system",
                                   "/sys/fs/cgroup",
                                   "/usr/lib",
                                   "/usr/share/zoneinfo"};

// Read by the library of NVIDIA's driver, which is opened when a device is first asked for, and
// which may stand beside the system's own libraries.
constexpr const char* kOfDriver[] = {"/etc/nvidia",       "/proc/devices",    "/proc/driver/nvidia",
                                     "/proc/modules",     "/proc/sys/vm",     "/sys/bus/pci",
                                     "/sys/devices",      "/sys/module",      "/usr/local/cuda",
                                     "/usr/local/nvidia", "/usr/share/nvidia"};

constexpr size_t kNumberBytes = 6;  // -00001

std::string folder_of(const fs::path& path) {
  const std::string folder = path.parent_path().string();
  return folder.empty() ? "." : folder;
}

// The folder that holds `path`, and the one that holds what it links to.
void add_folders_of_file(const fs::path& path, std::vector<std::string>& folders) {
  folders.push_back(folder_of(path));
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (!error) folders.push_back(folder_of(target));
}

void keep_each_once(std::vector<std::string>& paths) {
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
}

// /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm and what else there is of them.
void add_gpus(SandboxRules& rules) {
  const auto entries = entries_of("/dev");
  if (!entries.ok()) return;
  for (const fs::path& entry : *entries) {
    if (entry.filename().string().starts_with("nvidia")) rules.devices.push_back(entry);
  }
  if (rules.devices.empty()) return;
  rules.read.insert(rules.read.end(), std::begin(kOfDriver), std::end(kOfDriver));
  rules.devices.emplace_back("/proc/self");  // where the driver names its threads
}

}  // namespace

std::vector<std::string> files_of_model(const std::string& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const std::string first = fs::path(path).filename();
  const size_t number = first.rfind("-00001-of-");
  if (!is_folder && number == std::string::npos) return {path};
  std::vector<std::string> files;
  const std::string folder = is_folder ? path : folder_of(path);
  const auto entries = entries_of(folder);
  if (!entries.ok()) return files;
  for (const fs::path& entry : *entries) {
    const std::string name = entry.filename();
    const bool is_part = is_folder || (name.starts_with(first.substr(0, number + 1)) &&
                                       name.ends_with(first.substr(number + kNumberBytes)));
    std::error_code dangling;
    if (is_part && !fs::is_directory(entry, dangling)) files.push_back(entry);
  }
  return files;
}

std::vector<std::string> folders_of_model(const std::string& path) {
  std::vector<std::string> folders;
  for (const std::string& file : files_of_model(path)) add_folders_of_file(file, folders);
  keep_each_once(folders);
  return folders;
}

SandboxRules serve_sandbox(const ServeOptions& options, const ModelFolders& folders,
                           const std::vector<std::string>& paths, const std::string& state_dir) {
  SandboxRules rules;
  rules.read.assign(std::begin(kSystem), std::end(kSystem));
  for (const std::string& folder : {folders.models, folders.hf_cache}) {
    if (!folder.empty()) rules.read.push_back(folder);
  }
  for (const std::string& path : paths) {
    const std::vector<std::string> found = folders_of_model(path);
    rules.read.insert(rules.read.end(), found.begin(), found.end());
  }
  // Their folders, since a renewed certificate is a new file, or a new link.
  for (const std::string& file : {options.tls_cert, options.tls_key}) {
    if (!file.empty()) add_folders_of_file(file, rules.read);
  }
  if (options.device != "cpu") add_gpus(rules);
  keep_each_once(rules.read);
  rules.write.push_back(state_dir);
  return rules;
}

Status add_store(const std::string& url, SandboxRules& rules) {
  SKEIN_ASSIGN(const StoreAccess access, store_access(url));
  rules.connect_ports.insert(rules.connect_ports.end(), access.ports.begin(), access.ports.end());
  for (const std::string& file : access.files) add_folders_of_file(file, rules.read);
  // Where libpq looks for what the URL does not say: users, passwords, certificates.
  for (const char* path : {"/etc/passwd", "/etc/ssl/certs", "/etc/postgresql-common"}) {
    rules.read.emplace_back(path);
  }
  if (const char* file = std::getenv("PGPASSFILE")) rules.read.emplace_back(file);
  if (const char* home = std::getenv("HOME")) {
    for (const char* name : {"/.pgpass", "/.pg_service.conf", "/.postgresql"}) {
      rules.read.push_back(std::string(home) + name);
    }
  }
  return {};
}

Status check_within_sandbox(const std::string& path) {
  std::vector<std::string> files = files_of_model(path);
  files.push_back(path);  // of a folder that is hidden there are no files to be seen
  for (const std::string& file : files) {
    if (!is_hidden_by_sandbox(file)) continue;
    std::error_code error;
    const fs::path target = fs::canonical(file, error);
    return invalid_argument(
        "{}: stands for {}, which the sandbox of this server cannot read: links out of the model "
        "folder are followed at the start alone; start the server again, put the file into the "
        "model folder, or use --no-sandbox",
        file, error ? "a file elsewhere" : target.string());
  }
  return {};
}

}  // namespace skein::apps
