// unicode.cpp -- the classes of all code points, Unicode 16.0.0.
// Written by tools/make_unicode.py: change that.
#include "src/base/unicode.h"
#include <algorithm>

// Where the class changes: code points since the change before * 4 + the class from there on,
// in base 32; the digits are '^' to '}' and, the last one of a number, '0' to 'O'.
static constexpr char steps[] =
    "0_7D`;4_N_8Ma8Ia8_;4a;4_54N854>546<5`L5aL5_w8A_@_IDM454n5D589@54I45<545`@5h<5o<_1rH5bH94Ic4fMa<A@cEc<`F_8A85j<54_M"
    "8M:_9<94`145aHaEi4_=4_J_9b4_58A4E`HA4_54=4`Ma4M_<Ea05H`5c8e9dH=4`94M_8B_85`0A_0989`H5L54=@=4`14_E85<B_98:H94_1HA89"
    "`H5L585858aM@54N_89<`1_45<5`H5L585D=4`94_M8B_8_54_=_0989`H5L585D=4aI85<B_856H_=45H=<5@=85458=8=<=_@`I4`F_D`9_05<5`"
    "L5`0=4a9<9498B_8_2L54A_05<5`L5_85D=4aM858B_858`5_45<5c494`14E<6M<B`<5HE`8=a05_4549LaN_8`5d058_AL_6_8bM8545D5a0545_"
    "858_549D54_6_89@b14aN`@_A_05b@a=Dl=c<`A6_8IHA@=4=8M<A_D_A46_8IbH54E49c<5_gD5@9L545@9c45@9b45@9L545@9_L5e45@9f<_J`@"
    "=`0`1hH9H=`k@9`75a8Eg<>=_0M`8_E`<_I`8_I_D5<_Md@b=4A4>_8J_8`J_8Ii4MD9b854EfH_9aLbN_9aH9D_=c@Aa8J_<bE`L_5dDc>_8J_8_E"
    "4iEcL`5_0>_8c5aH_E:_9c@a9b@aB_8=>_9b@9_<Ec<9<c5@5H58=4Ev0f1_`H9H9bH9H9_05454545aL9dD5L54=<5L=@9HA_DE<5L?_<aG8G4cO4"
    "`254:HE6_8I_DjE4A49_854=DI454545@5_<9@EDA46d=:D`xJe@gJ`H`lJaHbkAzDI@=8_649bH54E49e0M4`1`L_5L5L5L5L5L5L5L5Lh14_x34A"
    ":4a6_4MD:=8AhHI<5i85@Ec<5iH>@_9b0d1`0b2_8aJ_06_Lb2_8bN_L_f1wv0f1`toDf=cH9__D=`2_98`AcL`1aL9fJ_8bM_49jL9f<98545_0`E"
    "`05<5@5`L_FH_9d@_Id8aB_8a1H=4586_9a@_9`La5aDMcLaA6_8ID5_:_9D5c4`M<5_0B_8I`L=4=d854=89D9454a1<9_<M<_AH9H9H_5L5L5c<5"
    "_HIl<_F_8I_ir@_A`LAd4__^A_kH9k8bIL_ADE45_85_D5D5458585k@b5_k<`9f09dHc1_@lAD5nL`>_8Ma8Ia8_=i4=H9H9H9<b=_@5a85`<585_"
    "L9_Hb9m<_BcD_Be4`68|AaD=d4`2a<Ab2@_5`B5_24EbH_9aH9b@A_06Dc9qH:_8Ib@Ab@Ac0_1d@_A_<5_L5L585_<5_L5L58=d@_A_dL_5`H_9_0"
    "a1H5c85_4fEH945c@58=49`L:_1`L:MaL_2_4d1`<58FE`JHAa8fIe0B9:`0:cI4_M@5<5aD_:_4`MaF85aF<b1_05a@JD`1dH_9`H:_1`<F_1`8`N"
    "Lh1g4dMd<_Ed<NIb@_B_8J_9a@_5`Ly:aL5c8I8`1<e=aF_94_1`H_>@a=`8cI`FL`A`L_AdDa:aH5894_EcDb1a4N_8_5b@_N_8A494_1b<=4_Ad0"
    "_I@_>_9454B`@_=`85a4`=8eML545@5_L5_8McL`6_8_=_0989`H5L585D=4`94_ADaI_854945bH54a5454cAdD`9@F_8E<aId0`A854_2_8rIcLc"
    "5@bAd0`A4_>_8bIc<_E4N_8J`@aAa<`F_@ALu5c@lAf2`<_A_0949_0585a0_M454_J_8fI_09bL`1454aA4_9c0M4`E4_=cH`=4`9g4vMb4_N_8I_"
    "45bD`54_NaDEaHl1L585bH`E4_6_8IH585b0_I4N_8_dI`<_M45_D5b8aB_8hI4_N`Dc=aq8jJkL`5v@hgAj4_Mbd0`5Ha5mq<E`fLxu5aH`:_8dvI"
    "`e4MaL6_8IgL6_8IaH`9d0`1@_B_86L5`DE`<_t1cD>_8vIf2`Lk5g<E4f9_Df1854aAu}0_1bxHc5_8_`zM@5L585_b<_M4aE<94_I@_1_o@g^Ak<"
    "E_D=_4M_8nhJ_8cvJ`@_B`@kBa4nMhD5fL5894989@5_@545L5f45@9_05L5a@5@5D54=L5_h@9a45a45aL5a45aL5a45aL5a45aL5a45_0:d8e^1a"
    "LIH_^EeHp9cD_9L:_8A4_f5aH`9c@B_8_xIa@B_8xIaH96_8_zEL5@585_L5vD:_4d1f@M4B_8a`Ne<6<6@gBcD6_Lv9@5a<5854945_85@5454I4A"
    "454545<5854945454545458549@5L5@5@545_85`4E<5D5`4`fB_Dhz>_8b^Icdz0b1ne8IyH9tn8_I{d4_M`kHgr9`aHcz9qg<Enj0";

struct Classes {
    uint8_t of[0x110000] = {};              // by code point
    Classes() {
        uint32_t number = 0;
        uint8_t *at = of, now = kOther;
        for (const char* c = steps; *c; c++) {
            number = number * 32 + uint32_t(*c - (*c < '^' ? '0' : '^'));
            if (*c >= '^') continue;
            at = std::fill_n(at, number / 4, now);
            now = number % 4;
            number = 0;
        }
    }
};

CharClass char_class(uint32_t code) {
    static const Classes classes;
    return CharClass(classes.of[code]);
}
