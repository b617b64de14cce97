# embed.cmake - writes OUTPUT, the bytes of INPUT as a list that C takes:
# cmake -DINPUT=... -DOUTPUT=... -P embed.cmake
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUTPUT}" "${bytes}\n")
