include(CMakePackageConfigHelpers)

install(TARGETS posenc EXPORT posencTargets LIBRARY DESTINATION lib ARCHIVE DESTINATION lib RUNTIME DESTINATION bin)
install(EXPORT posencTargets NAMESPACE posenc:: DESTINATION lib/cmake/posenc)

# The headers that posenc.h reaches, and no others.
foreach(header IN ITEMS
    macros.h
    math/convention.h
    nn/positional_encoding.h
    ops/add.h
    ops/add_dropout.h
    ops/encode.h
    ops/library.h
    posenc.h
    version.h)
  get_filename_component(folder "include/posenc/${header}" DIRECTORY)
  install(FILES "csrc/posenc/${header}" DESTINATION ${folder})
endforeach()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" POSENC_TORCH_MINOR "${LibTorch_VERSION}")
configure_package_config_file(cmake/posencConfig.cmake.in cmake/posencConfig.cmake
  INSTALL_DESTINATION lib/cmake/posenc NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/posencConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/cmake/posencConfig.cmake"
  "${PROJECT_BINARY_DIR}/cmake/posencConfigVersion.cmake"
  cmake/FindLibTorch.cmake
  DESTINATION lib/cmake/posenc)

# What the Python package compares with the torch it meets, in the package's own folder.
if(POSENC_WITH_CUDA)
  set(POSENC_CUDA_VERSION "\"${posenc_nvcc_version}\"")
  list(JOIN CMAKE_CUDA_ARCHITECTURES ";" POSENC_CUDA_ARCHITECTURES)
else()
  set(POSENC_CUDA_VERSION "None")
  set(POSENC_CUDA_ARCHITECTURES "")
endif()
configure_file(cmake/_build_info.py.in _build_info.py @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/_build_info.py" DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
