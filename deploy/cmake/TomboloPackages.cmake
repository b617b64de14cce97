# The packages that CPack makes of an install: four Debian packages and one tarball. deploy/packages
# calls it.
#
# A component is a package: programs (tombolo), client (libtombolo0), development (libtombolo-dev)
# and python (python3-tombolo).

set(doc ${CMAKE_INSTALL_DATAROOTDIR}/doc)

# The tarball has no maintainer scripts: these three are copied by hand.
install(FILES deploy/systemd/tombolod@.service deploy/systemd/tombolo-web.service
        DESTINATION lib/systemd/system COMPONENT programs)
install(DIRECTORY deploy/schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/tombolo COMPONENT programs FILES_MATCHING PATTERN "*.json")
install(PROGRAMS deploy/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/tombolo COMPONENT programs)
install(FILES deploy/systemd/rdma.conf DESTINATION ${doc}/tombolo/examples COMPONENT programs)
install(FILES deploy/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME tombolo.conf COMPONENT programs)
install(FILES deploy/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME tombolo.conf COMPONENT programs)
install(DIRECTORY python/tombolo DESTINATION lib/python3/dist-packages COMPONENT python FILES_MATCHING
        PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE PATTERN native EXCLUDE)

# Inside each package: its licences, and which software it is made of and links (SPDX 2.3).
string(TIMESTAMP TB_BOM_CREATED "%Y-%m-%dT%H:%M:%SZ" UTC) # SOURCE_DATE_EPOCH where it is set
# tb_bom(NAME VERSION LICENCE RELATION): a row of it.
set(TB_BOM_PACKAGES)
set(TB_BOM_RELATIONS)
function(tb_bom name version licence relation)
  list(APPEND TB_BOM_PACKAGES "{\"SPDXID\": \"SPDXRef-${name}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\", \"licenseDeclared\": \"${licence}\",
     \"licenseConcluded\": \"${licence}\", \"copyrightText\": \"NOASSERTION\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false}")
  list(APPEND TB_BOM_RELATIONS
       "{\"spdxElementId\": \"SPDXRef-tombolo\", \"relationshipType\": \"${relation}\", \"relatedSpdxElement\": \"SPDXRef-${name}\"}")
  set(TB_BOM_PACKAGES "${TB_BOM_PACKAGES}" PARENT_SCOPE)
  set(TB_BOM_RELATIONS "${TB_BOM_RELATIONS}" PARENT_SCOPE)
endfunction()
tb_bom(xxhash "${XXHASH_VERSION}" BSD-2-Clause CONTAINS) # its header is compiled in
tb_bom(libuv "${UV_VERSION}" MIT DYNAMIC_LINK)
tb_bom(openssl "${SSL_VERSION}" Apache-2.0 DYNAMIC_LINK)
tb_bom(zstd "${ZSTD_VERSION}" BSD-3-Clause DYNAMIC_LINK)
tb_bom(c-ares "${CARES_VERSION}" MIT DYNAMIC_LINK)
tb_bom(libyaml "${YAML_VERSION}" MIT DYNAMIC_LINK)
tb_bom(jansson "${JANSSON_VERSION}" MIT DYNAMIC_LINK)
tb_bom(libmicrohttpd "${MICROHTTPD_VERSION}" LGPL-2.1-or-later DYNAMIC_LINK)
tb_bom(yajl "${YAJL_VERSION}" ISC DYNAMIC_LINK)
tb_bom(sqlite "${SQLITE_VERSION}" blessing DYNAMIC_LINK)
if(TB_SECCOMP)
  tb_bom(libseccomp "${SECCOMP_VERSION}" LGPL-2.1-only DYNAMIC_LINK)
endif()
if(TB_RDMA AND NOT TB_VERBS_AT_RUN_TIME)
  tb_bom(rdma-core "${VERBS_libibverbs_VERSION}" "GPL-2.0-only OR BSD-2-Clause" DYNAMIC_LINK)
endif()
string(REPLACE ";" ",\n    " TB_BOM_PACKAGES "${TB_BOM_PACKAGES}")
string(REPLACE ";" ",\n    " TB_BOM_RELATIONS "${TB_BOM_RELATIONS}")
configure_file(deploy/debian/sbom.spdx.json.in ${PROJECT_BINARY_DIR}/packages/sbom.spdx.json @ONLY)
foreach(pair programs:tombolo client:libtombolo0 development:libtombolo-dev python:python3-tombolo)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES deploy/debian/copyright ${PROJECT_BINARY_DIR}/packages/sbom.spdx.json DESTINATION ${doc}/${package} COMPONENT ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
endforeach()
install(FILES CHANGELOG.md DESTINATION ${doc}/tombolo COMPONENT programs)

set(CPACK_PACKAGE_NAME tombolo)
set(CPACK_PACKAGE_VENDOR "Tombolo")
set(CPACK_PACKAGE_CONTACT "Tombolo maintainers <maintainers@tombolo.invalid>")
set(CPACK_COMPONENTS_ALL programs client development python)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PACKAGE_FILE_NAME tombolo-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(exact "(= ${PROJECT_VERSION}-1)")
set(CPACK_DEBIAN_PROGRAMS_DESCRIPTION "Weights of models between datacenters: gateway and command line
Tombolo keeps the newest weights of a model, as its trainer publishes them,
in every datacenter where rollouts run. This package has the gateway
(tombolod), the command line (tombolo) and the status page (tombolo-web).")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS
    "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS "ibverbs-providers")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONTROL_EXTRA
    "${PROJECT_SOURCE_DIR}/deploy/debian/postinst;${PROJECT_SOURCE_DIR}/deploy/debian/prerm;${PROJECT_SOURCE_DIR}/deploy/debian/postrm")

set(CPACK_DEBIAN_CLIENT_DESCRIPTION "Weights of models between datacenters: library
What trainers and engines link: publish from memory, stage while serving,
switch a whole reader group at once.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/deploy/debian/triggers")

set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Weights of models between datacenters: headers
Headers, pkg-config and CMake files for programs that link libtombolo.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libtombolo0 ${exact}")

set(CPACK_DEBIAN_PYTHON_DESCRIPTION "Weights of models between datacenters: Python package
publish() and follow() for torch, numpy, DLPack and buffers.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.10), libtombolo0 ${exact}")

include(CPack)
foreach(component programs client development python)
  cpack_add_component(${component})
endforeach()
