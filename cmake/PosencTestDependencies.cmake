#[[
posenc_require_gtest(), posenc_require_benchmark(): the installed package, else the installed source (what Debian's
package has for a build for another processor), else the release fetched at a pinned hash, else one message with the
system's install command.
]]
function(posenc_require name target package source url hash)
  find_package(${name} QUIET)
  if(TARGET ${target})
    return()
  endif()
  include(FetchContent)
  if(EXISTS "/usr/src/${source}/CMakeLists.txt")
    FetchContent_Declare(${name} SOURCE_DIR "/usr/src/${source}" SYSTEM)
    FetchContent_MakeAvailable(${name})
    return()
  endif()
  set(archive "${PROJECT_BINARY_DIR}/_deps/${name}.tar.gz")
  if(NOT EXISTS "${archive}")
    message(STATUS "posenc: ${name} is not installed, fetching ${url}")
    file(DOWNLOAD "${url}" "${archive}.part" STATUS status TLS_VERIFY ON INACTIVITY_TIMEOUT 20)
    list(GET status 0 code)
    if(NOT code EQUAL 0)
      list(GET status 1 reason)
      file(REMOVE "${archive}.part")
      message(FATAL_ERROR
        "posenc: ${name} must be installed or downloadable, but ${url} gave \"${reason}\". "
        "Run: sudo apt-get install ${package} (or your system's package of it).")
    endif()
    file(RENAME "${archive}.part" "${archive}")
  endif()
  FetchContent_Declare(${name} URL "${archive}" URL_HASH SHA256=${hash} DOWNLOAD_EXTRACT_TIMESTAMP ON SYSTEM)
  FetchContent_MakeAvailable(${name})
endfunction()

macro(posenc_require_gtest)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
  posenc_require(GTest GTest::gtest_main libgtest-dev googletest
    https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
    8ad598c73ad796e0d8280b082cebd82a630d73e73cd3c70057938a6501bba5d7)
endmacro()

macro(posenc_require_benchmark)
  set(BENCHMARK_ENABLE_TESTING OFF CACHE BOOL "" FORCE)
  set(BENCHMARK_ENABLE_INSTALL OFF CACHE BOOL "" FORCE)
  posenc_require(benchmark benchmark::benchmark libbenchmark-dev benchmark
    https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
    6bc180a57d23d4d9515519f92b0c83d61b05b5bab188961f36ac7b06b0d9e9ce)
endmacro()
