// Opens posenc at run time, in a process without Python, and looks its operator up: usage: open_library LIBRARY

#include <dlfcn.h>
#include <iostream>

#include <ATen/core/dispatch/Dispatcher.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (dlopen(argv[1], RTLD_NOW) == nullptr) {
    std::cerr << dlerror() << '\n';
    return 1;
  }
  const auto schema = c10::Dispatcher::singleton().findSchema({"posenc::encode", ""});
  if (!schema) {
    std::cerr << "posenc::encode is not registered\n";
    return 1;
  }
  std::cout << schema->schema() << '\n';
}
