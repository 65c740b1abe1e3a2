#[[
FindLibTorch: finds LibTorch without running find_package(Torch), which needs the CUDA toolkit as soon as torch was
built with CUDA, and without importing torch. Used by the build of posenc and by the installed posencConfig.cmake.

Looked up in this order:
  LibTorch_ROOT, Torch_DIR, CMAKE_PREFIX_PATH   a libtorch folder, or what torch.utils.cmake_prefix_path prints
  LibTorch_HINTS                                folders that the caller knows of
  Python3_EXECUTABLE, Python_EXECUTABLE, else python3 on PATH: the torch package of that interpreter

Sets:
  LibTorch_FOUND, LibTorch_NOT_FOUND_MESSAGE    the message is one readable sentence with a remedy
  LibTorch_ROOT_DIR, LibTorch_VERSION           2.15.0
  LibTorch_CUDA_VERSION                         13.2, or empty if torch was built without CUDA
  LibTorch_CUDART                               the CUDA runtime that torch itself loads, if it could be found
  LibTorch_LIBRARY_DIRS                         where these libraries lie
Makes:
  posenc::libtorch         headers, libtorch, libtorch_cpu, libc10
  posenc::libtorch_cuda    libtorch_cuda, libc10_cuda and the CUDA runtime; only if torch was built with CUDA
]]

set(LibTorch_FOUND FALSE)
set(LibTorch_NOT_FOUND_MESSAGE "")
set(LibTorch_MINIMUM_VERSION 2.11)

# System folders are left out: a distribution's old libtorch must not win over the torch of the active environment.
find_path(LibTorch_INCLUDE_DIR torch/library.h
  HINTS ${Torch_DIR} ${LibTorch_HINTS}
  PATH_SUFFIXES include ../../include ../../../include
  NO_SYSTEM_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)

if(NOT LibTorch_INCLUDE_DIR)
  if(Python3_EXECUTABLE)
    set(LibTorch_PYTHON "${Python3_EXECUTABLE}")
  elseif(Python_EXECUTABLE)
    set(LibTorch_PYTHON "${Python_EXECUTABLE}")
  else()
    find_program(LibTorch_PYTHON NAMES python3 python NO_CACHE)
  endif()
  set(LibTorch_PACKAGE_DIR "")
  if(LibTorch_PYTHON)
    # From the root folder, because `python -c` puts the working folder first on its search path.
    execute_process(
      COMMAND "${LibTorch_PYTHON}" -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      WORKING_DIRECTORY /
      OUTPUT_VARIABLE LibTorch_PACKAGE_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(LibTorch_PACKAGE_DIR)
    find_path(LibTorch_INCLUDE_DIR torch/library.h PATHS "${LibTorch_PACKAGE_DIR}/include" NO_DEFAULT_PATH)
  endif()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR)

if(NOT LibTorch_INCLUDE_DIR)
  if(LibTorch_PYTHON)
    set(LibTorch_PLACE "${LibTorch_PYTHON} has none")
  else()
    set(LibTorch_PLACE "there is no Python")
  endif()
  set(LibTorch_NOT_FOUND_MESSAGE
    "posenc: torch >= ${LibTorch_MINIMUM_VERSION} must be installed, but ${LibTorch_PLACE} and CMAKE_PREFIX_PATH \
names none. Run: pip install \"torch>=${LibTorch_MINIMUM_VERSION}\", or pass -DCMAKE_PREFIX_PATH=<libtorch folder>.")
  return()
endif()

get_filename_component(LibTorch_INCLUDE_DIR "${LibTorch_INCLUDE_DIR}" ABSOLUTE)
get_filename_component(LibTorch_ROOT_DIR "${LibTorch_INCLUDE_DIR}" DIRECTORY)

set(LibTorch_VERSION "")
foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT LibTorch_VERSION AND EXISTS "${LibTorch_INCLUDE_DIR}/${header}")
    file(STRINGS "${LibTorch_INCLUDE_DIR}/${header}" LibTorch_VERSION
      REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    list(TRANSFORM LibTorch_VERSION REPLACE ".* ([0-9]+)$" "\\1")
    list(JOIN LibTorch_VERSION "." LibTorch_VERSION)
  endif()
endforeach()
if(LibTorch_VERSION VERSION_LESS LibTorch_MINIMUM_VERSION)
  set(LibTorch_NOT_FOUND_MESSAGE
    "posenc: torch must be >= ${LibTorch_MINIMUM_VERSION}, but got ${LibTorch_VERSION} in ${LibTorch_ROOT_DIR}. \
Run: pip install --upgrade \"torch>=${LibTorch_MINIMUM_VERSION}\".")
  return()
endif()

# The libraries are looked up anew each time (NO_CACHE), so that two installations cannot be mixed.
set(LibTorch_LIBRARIES "")
foreach(name IN ITEMS torch torch_cpu c10)
  unset(LibTorch_${name})
  find_library(LibTorch_${name} ${name} PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH NO_CACHE)
  if(NOT LibTorch_${name})
    set(LibTorch_NOT_FOUND_MESSAGE
      "posenc: torch must have the library ${name} in ${LibTorch_ROOT_DIR}/lib, but it is not there. Reinstall torch.")
    return()
  endif()
  list(APPEND LibTorch_LIBRARIES "${LibTorch_${name}}")
endforeach()

set(LibTorch_LIBRARY_DIRS "${LibTorch_ROOT_DIR}/lib")

set(LibTorch_CUDA_VERSION "")
unset(LibTorch_torch_cuda)
unset(LibTorch_c10_cuda)
find_library(LibTorch_torch_cuda torch_cuda PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH NO_CACHE)
find_library(LibTorch_c10_cuda c10_cuda PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH NO_CACHE)
if(LibTorch_torch_cuda AND LibTorch_c10_cuda)
  if(EXISTS "${LibTorch_ROOT_DIR}/version.py")  # the Python package
    file(STRINGS "${LibTorch_ROOT_DIR}/version.py" LibTorch_CUDA_VERSION REGEX "^cuda.*'[0-9.]+'")
    string(REGEX REPLACE ".*'([0-9.]+)'.*" "\\1" LibTorch_CUDA_VERSION "${LibTorch_CUDA_VERSION}")
  elseif(EXISTS "${LibTorch_ROOT_DIR}/build-version")  # the archive for C++ users: 2.15.0+cu132
    file(STRINGS "${LibTorch_ROOT_DIR}/build-version" LibTorch_CUDA_VERSION REGEX "\\+cu[0-9]+")
    string(REGEX REPLACE ".*\\+cu([0-9]+)([0-9]).*" "\\1.\\2" LibTorch_CUDA_VERSION "${LibTorch_CUDA_VERSION}")
  endif()
endif()

# A second CUDA runtime in the process would have its own idea of the current device, so we link the one torch loads.
unset(LibTorch_CUDART)
if(LibTorch_CUDA_VERSION)
  string(REGEX MATCH "^[0-9]+" LibTorch_CUDA_MAJOR "${LibTorch_CUDA_VERSION}")
  set(LibTorch_NVIDIA_DIR "${LibTorch_ROOT_DIR}/../nvidia")
  find_file(LibTorch_CUDART libcudart.so.${LibTorch_CUDA_MAJOR}
    PATHS "${LibTorch_ROOT_DIR}/lib" "${LibTorch_NVIDIA_DIR}/cu${LibTorch_CUDA_MAJOR}/lib"
      "${LibTorch_NVIDIA_DIR}/cuda_runtime/lib"
    NO_DEFAULT_PATH NO_CACHE)
  if(NOT LibTorch_CUDART)  # the archive's copy has a hash in its name
    file(GLOB LibTorch_CUDART "${LibTorch_ROOT_DIR}/lib/libcudart-*.so.${LibTorch_CUDA_MAJOR}*")
  endif()
  if(LibTorch_CUDART)
    get_filename_component(LibTorch_CUDART "${LibTorch_CUDART}" ABSOLUTE)
    get_filename_component(LibTorch_CUDART_DIR "${LibTorch_CUDART}" DIRECTORY)
    list(APPEND LibTorch_LIBRARY_DIRS "${LibTorch_CUDART_DIR}")
  endif()
endif()

if(NOT TARGET posenc::libtorch)
  add_library(posenc::libtorch INTERFACE IMPORTED)
  target_include_directories(posenc::libtorch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_features(posenc::libtorch INTERFACE cxx_std_20)
  target_link_libraries(posenc::libtorch INTERFACE ${LibTorch_LIBRARIES})
  if(UNIX AND NOT APPLE)
    # The linker also checks the libraries behind libtorch_cuda, and may meet a CUDA toolkit's copies that are older
    # than torch's own ("undefined reference to ncclCommResume"). Symbols of our own objects are still checked.
    target_link_options(posenc::libtorch INTERFACE LINKER:--allow-shlib-undefined)
  endif()
endif()
if(LibTorch_CUDA_VERSION AND NOT TARGET posenc::libtorch_cuda)
  add_library(posenc::libtorch_cuda INTERFACE IMPORTED)
  target_link_libraries(posenc::libtorch_cuda INTERFACE "${LibTorch_torch_cuda}" "${LibTorch_c10_cuda}")
  if(LibTorch_CUDART)
    target_link_libraries(posenc::libtorch_cuda INTERFACE "${LibTorch_CUDART}")
  endif()
endif()

set(LibTorch_FOUND TRUE)
